"""A running kuvasz seen and steered from outside: health, status, metrics and a small management API over HTTP."""
