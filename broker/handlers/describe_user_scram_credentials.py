"""DescribeUserScramCredentials.

Versions: 0.
Behaviour: there are no users with passwords, so a request for all users gets an empty list. As in Kafka, a named user
gets RESOURCE_NOT_FOUND, and one that appears twice gets DUPLICATE_RESOURCE.
"""

from collections import Counter

from tidelog.broker.session import Session
from tidelog.broker.work import LONG, MANY, anywhere, map_in_chunks, reader
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


async def handle(
    _session: Session, request: DescribeUserScramCredentialsRequest, _version: int
) -> DescribeUserScramCredentialsResponse:
    """Answer that no user exists; on a reader thread if there are many."""
    users = request.users or []
    await (anywhere() if len(users) <= MANY else reader(LONG))
    times = Counter(user.name for user in users)
    results = await map_in_chunks(_result, list(times.items()))
    return DescribeUserScramCredentialsResponse(
        error_code=ErrorCode.NONE, error_message=None, results=results
    )


def _result(named: tuple[str, int]) -> DescribeUserScramCredentialsResult:
    name, times = named
    code, message = ErrorCode.RESOURCE_NOT_FOUND, "there is no such user: this broker has no passwords"
    if times > 1:
        code, message = ErrorCode.DUPLICATE_RESOURCE, "the user appears twice in the request"
    return DescribeUserScramCredentialsResult(
        user=name, error_code=code, error_message=message, credential_infos=[]
    )
