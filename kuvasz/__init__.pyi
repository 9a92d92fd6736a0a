from kuvasz.verbs.replicate import Replicator as Replicator

__version__: str
