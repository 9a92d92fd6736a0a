"""The verbs that a running kuvasz answers by HTTP, too."""
