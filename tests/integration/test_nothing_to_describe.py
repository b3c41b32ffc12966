"""What one node without users has none of, which dashboards ask for: the answer says so, in Kafka's words."""

from typing import Any

import pytest

from tests.support.served import Client, versions
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages import describe_acls as acls
from tidelog.protocol.messages import describe_client_quotas as quotas
from tidelog.protocol.messages import describe_user_scram_credentials as scram
from tidelog.protocol.messages import list_transactions as transactions


@versions(acls.DESCRIBE_ACLS)
async def test_describe_acls(client: Client, version: int) -> None:
    request = acls.DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    answer = await client.ask(acls.DESCRIBE_ACLS, version, request)
    assert (answer.error_code, answer.resources) == (ErrorCode.SECURITY_DISABLED, [])
    assert answer.error_message == "there are no ACLs: every client may do everything"


@versions(quotas.DESCRIBE_CLIENT_QUOTAS)
async def test_describe_client_quotas(client: Client, version: int) -> None:

    async def ask(*types: str) -> Any:
        parts = [quotas.ComponentData(entity_type=each, match_type=2, match=None) for each in types]
        request = quotas.DescribeClientQuotasRequest(components=parts, strict=False)
        answer = await client.ask(quotas.DESCRIBE_CLIENT_QUOTAS, version, request)
        assert answer.entries == []
        return answer.error_code, answer.error_message

    for types in ((), ("user", "client-id"), ("ip",)):
        assert await ask(*types) == (ErrorCode.NONE, None)
    assert await ask("user", "user") == (ErrorCode.INVALID_REQUEST, "the entity type user appears twice")
    assert await ask("") == (ErrorCode.INVALID_REQUEST, "an entity type must not be empty")
    assert await ask("shoe") == (
        ErrorCode.UNSUPPORTED_VERSION,
        "unknown entity type 'shoe'; the types are user, client-id, ip",
    )


async def scram_users(client: Client, users: list[str] | None, version: int = 0) -> dict[str, int]:
    named = None if users is None else [scram.UserName(name=user) for user in users]
    request = scram.DescribeUserScramCredentialsRequest(users=named)
    answer = await client.ask(scram.DESCRIBE_USER_SCRAM_CREDENTIALS, version, request)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    assert all(each.error_message and not each.credential_infos for each in answer.results)
    return {each.user: each.error_code for each in answer.results}


@versions(scram.DESCRIBE_USER_SCRAM_CREDENTIALS)
async def test_describe_user_scram_credentials(client: Client, version: int) -> None:
    for everybody in (None, []):
        assert await scram_users(client, everybody, version) == {}
    assert await scram_users(client, ["a", "b", "a"], version) == {
        "a": ErrorCode.DUPLICATE_RESOURCE,
        "b": ErrorCode.RESOURCE_NOT_FOUND,
    }


@versions(transactions.LIST_TRANSACTIONS)
async def test_list_transactions(client: Client, version: int) -> None:

    async def ask(*states: str) -> Any:
        request = transactions.ListTransactionsRequest(state_filters=list(states), producer_id_filters=[7])
        answer = await client.ask(transactions.LIST_TRANSACTIONS, version, request)
        assert (answer.error_code, answer.transaction_states) == (ErrorCode.NONE, [])
        return answer.unknown_state_filters

    assert await ask() == []
    assert await ask("Ongoing", "ongoing", "Dead", "Over") == ["ongoing", "Over"]


@pytest.mark.parametrize("many", [1000, 20_000])
async def test_of_many_at_once(client: Client, many: int) -> None:
    names = [f"n{number}" for number in range(many)]
    assert len(await scram_users(client, names)) == many
    request = transactions.ListTransactionsRequest(state_filters=names, producer_id_filters=[])
    answer = await client.ask(transactions.LIST_TRANSACTIONS, 2, request)
    assert answer.unknown_state_filters == names
