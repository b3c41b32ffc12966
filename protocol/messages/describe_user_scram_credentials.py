"""DescribeUserScramCredentials: the users with passwords, and how they are stored (KIP-554)."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import INT8, INT16, INT32, STRING, Array


@message
class UserName:
    """A user."""

    name: str = field(STRING)


@message
class DescribeUserScramCredentialsRequest:
    """Ask about users, by default all."""

    users: list[UserName] | None = field(Array(UserName), nullable="0+")


@message
class CredentialInfo:
    """How a password is stored: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512."""

    mechanism: int = field(INT8)
    iterations: int = field(INT32)


@message
class DescribeUserScramCredentialsResult:
    """The credentials of a user."""

    user: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    credential_infos: list[CredentialInfo] = field(Array(CredentialInfo))


@message
class DescribeUserScramCredentialsResponse:
    """Answer with each user once."""

    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = field(Array(DescribeUserScramCredentialsResult))


DESCRIBE_USER_SCRAM_CREDENTIALS = Api(
    key=50,
    versions="0",
    flexible="0+",
    request=DescribeUserScramCredentialsRequest,
    response=DescribeUserScramCredentialsResponse,
)
