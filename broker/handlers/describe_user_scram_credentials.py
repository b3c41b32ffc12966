"""DescribeUserScramCredentials.

Versions: 0.
Behaviour: there are no users with passwords. Who asks for all of them is told of none; one that is named is answered
RESOURCE_NOT_FOUND, one that stands twice DUPLICATE_RESOURCE, as Kafka does.
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
    """Say of each user that there is no such; on a reader thread where they are many."""
    users = request.users or []
    await (anywhere() if len(users) <= MANY else reader(LONG))
    times = Counter(user.name for user in users)
    results = await map_in_chunks(_result, list(times.items()))
    return DescribeUserScramCredentialsResponse(
        error_code=ErrorCode.NONE, error_message=None, results=results
    )


def _result(named: tuple[str, int]) -> DescribeUserScramCredentialsResult:
    name, times = named
    code, message = ErrorCode.RESOURCE_NOT_FOUND, "there is no such user: nobody is asked for a password here"
    if times > 1:
        code, message = ErrorCode.DUPLICATE_RESOURCE, "the user stands twice in the request"
    return DescribeUserScramCredentialsResult(
        user=name, error_code=code, error_message=message, credential_infos=[]
    )
