"""ConsumerGroupDescribe (KIP-848, versions 0-1) as a request of kafka-python 3.0.12, which does not have it.

Owns the form of the two messages. Loaded when a group of that type is described: it loads the client library.
"""

from typing import Any

from kafka.protocol.api_message import ApiMessage


def _field(name: str, kind: str, *, versions: str = "0+", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "versions": versions, **more}


def _text(name: str, **more: Any) -> dict[str, Any]:
    return _field(name, "string", **more)


def _message(kind: str, name: str, fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiKey": 69,
        "type": kind,
        "name": name,
        "validVersions": "0-1",
        "flexibleVersions": "0+",
        "fields": fields,
    }


_OR_NULL = {"nullableVersions": "0+", "default": "null"}
_PARTITIONS = [_field("TopicId", "uuid"), _text("TopicName"), _field("Partitions", "[]int32")]
_ASSIGNMENT = [_field("TopicPartitions", "[]TopicPartitions", fields=_PARTITIONS)]
_MEMBER = [
    _text("MemberId"),
    _text("InstanceId", **_OR_NULL),
    _text("RackId", **_OR_NULL),
    _field("MemberEpoch", "int32"),
    _text("ClientId"),
    _text("ClientHost"),
    _field("SubscribedTopicNames", "[]string"),
    _text("SubscribedTopicRegex", **_OR_NULL),
    _field("Assignment", "Assignment", fields=_ASSIGNMENT),
    _field("TargetAssignment", "Assignment", fields=_ASSIGNMENT),
    _field("MemberType", "int8", versions="1+", default="-1", ignorable=True),
]
_GROUP = [
    _field("ErrorCode", "int16"),
    _text("ErrorMessage", **_OR_NULL),
    _text("GroupId"),
    _text("GroupState"),
    _field("GroupEpoch", "int32"),
    _field("AssignmentEpoch", "int32"),
    _text("AssignorName"),
    _field("Members", "[]Member", fields=_MEMBER),
    _field("AuthorizedOperations", "int32", default="-2147483648"),
]
_REQUEST = [_field("GroupIds", "[]string"), _field("IncludeAuthorizedOperations", "bool")]
_RESPONSE = [_field("ThrottleTimeMs", "int32"), _field("Groups", "[]DescribedGroup", fields=_GROUP)]


# The library looks for a message's form in a file of its own by the name of the class, and lets it be patched then.
class DescribeGroupsRequest(ApiMessage):  # type: ignore[misc]
    """Ask for groups of the newer protocol by their ids."""

    @classmethod
    def json_patch(cls, _json: Any) -> dict[str, Any]:
        """Return the form of the request."""
        return _message("request", "ConsumerGroupDescribeRequest", _REQUEST)


class DescribeGroupsResponse(ApiMessage):  # type: ignore[misc]
    """Their members, and what each reads."""

    @classmethod
    def json_patch(cls, _json: Any) -> dict[str, Any]:
        """Return the form of the response."""
        return _message("response", "ConsumerGroupDescribeResponse", _RESPONSE)
