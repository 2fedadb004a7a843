"""
Jaeger's query API over the store of an attempt, so that a trace view works with no backend installed.

``query`` reads what is asked for, ``search`` finds it in the store, ``shape`` says it as Jaeger does, and ``routes``
has the endpoints that Jaeger's UI and Grafana's data source for Jaeger call.
"""
