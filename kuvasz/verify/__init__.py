"""``kuvasz verify``: the lake compared with its sources, beside a running kuvasz or without one."""
