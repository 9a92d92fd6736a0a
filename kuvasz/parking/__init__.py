"""The parking log: changes of tables that do not follow, kept on local disk so that their source keeps no WAL.

In: changes of whole transactions, as a live delivery holds them. Out: the same, in the same order, when the table
follows again. Input and output on files only; it knows neither sources nor lake.
"""
