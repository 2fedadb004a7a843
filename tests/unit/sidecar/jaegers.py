"""
What tests of Jaeger's query API share: the shape that its clients decode, and a store to ask.

The schema is written after the types of Jaeger's own JSON (its UI model) and those that Grafana's data source decodes.
"""

from typing import Any

from jsonschema import Draft202012Validator

TAG = {
    "type": "object",
    "required": ["key", "type", "value"],
    "additionalProperties": False,
    "properties": {
        "key": {"type": "string"},
        "type": {"enum": ["string", "bool", "int64", "float64", "binary"]},
        "value": {"type": ["string", "boolean", "number"]},
    },
    "allOf": [
        {
            "if": {"properties": {"type": {"const": kind}}},
            "then": {"properties": {"value": {"type": shown}}},
        }
        for kind, shown in (
            ("string", "string"),
            ("bool", "boolean"),
            ("int64", ["integer", "string"]),
            ("float64", "number"),
        )
    ],
}

TAGS = {"type": "array", "items": TAG}
WARNINGS = {"type": ["array", "null"], "items": {"type": "string"}}
TRACE_ID = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
SPAN_ID = {"type": "string", "pattern": "^[0-9a-f]{16}$"}

SPAN = {
    "type": "object",
    "required": [
        "traceID",
        "spanID",
        "operationName",
        "references",
        "startTime",
        "duration",
        "tags",
        "logs",
        "processID",
        "warnings",
    ],
    "additionalProperties": False,
    "properties": {
        "traceID": TRACE_ID,
        "spanID": SPAN_ID,
        "operationName": {"type": "string"},
        "references": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["refType", "traceID", "spanID"],
                "additionalProperties": False,
                "properties": {
                    "refType": {"enum": ["CHILD_OF", "FOLLOWS_FROM"]},
                    "traceID": TRACE_ID,
                    "spanID": SPAN_ID,
                },
            },
        },
        "startTime": {"type": "integer", "minimum": 0},
        "duration": {"type": "integer", "minimum": 0},
        "tags": TAGS,
        "logs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["timestamp", "fields"],
                "additionalProperties": False,
                "properties": {"timestamp": {"type": "integer", "minimum": 0}, "fields": TAGS},
            },
        },
        "processID": {"type": "string"},
        "warnings": WARNINGS,
    },
}

TRACE = {
    "type": "object",
    "required": ["traceID", "spans", "processes", "warnings"],
    "additionalProperties": False,
    "properties": {
        "traceID": TRACE_ID,
        "spans": {"type": "array", "items": SPAN, "minItems": 1},
        "processes": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "required": ["serviceName", "tags"],
                "additionalProperties": False,
                "properties": {"serviceName": {"type": "string", "minLength": 1}, "tags": TAGS},
            },
        },
        "warnings": WARNINGS,
    },
}

OPERATION = {
    "type": "object",
    "required": ["name", "spanKind"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string"},
        "spanKind": {"enum": ["", "internal", "server", "client", "producer", "consumer"]},
    },
}

CALLS = {
    "type": "object",
    "required": ["parent", "child", "callCount"],
    "additionalProperties": False,
    "properties": {
        "parent": {"type": "string"},
        "child": {"type": "string"},
        "callCount": {"type": "integer", "minimum": 1},
    },
}


def envelope(item: dict[str, Any]) -> dict[str, Any]:
    """
    What every answer is wrapped in, around things like ``item``.
    """
    return {
        "type": "object",
        "required": ["data", "total", "limit", "offset", "errors"],
        "additionalProperties": False,
        "properties": {
            "data": {"type": ["array", "null"], "items": item},
            "total": {"type": "integer"},
            "limit": {"type": "integer"},
            "offset": {"type": "integer"},
            "errors": {
                "type": ["array", "null"],
                "items": {
                    "type": "object",
                    "required": ["code", "msg"],
                    "properties": {"code": {"type": "integer"}, "msg": {"type": "string", "minLength": 1}},
                },
            },
        },
    }


def conforms(found: object, item: dict[str, Any]) -> None:
    """
    Fail unless ``found`` is an answer of things like ``item``.
    """
    Draft202012Validator(envelope(item)).validate(found)
