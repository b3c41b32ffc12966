"""Groups of consumers, and the offsets that they have committed.

A group shares out the partitions of topics among its members, so that each partition is read by one of them, and keeps
how far it has come in each. There are two protocols:

**Classic** (`classic`). A *generation* begins when members join: the group waits until all have (JoinGroup), one of
them is the leader and assigns, and all get their assignment (SyncGroup) once it is on disk. Heartbeats keep a member's
session alive and tell it to join again. The whole group stops for each rebalance. The group knows little of what its
members say: protocols and their metadata are bytes.

**Consumer** (`consumer`, KIP-848). Members say what they read and what they own, in heartbeats; the broker assigns.
A change of subscriptions, members or topics begins an *epoch*. For the newest epoch a *target assignment* is made
(`assignors`), on the maintenance thread if it takes long. Each member goes from what it has to its target by itself: it
gives up what it is to lose, then its epoch becomes the target's, then it gets what others have given up. Nobody waits
for a member that has nothing to give up.

**Migration** (`migration`). A classic group of consumers becomes a consumer group when a member joins by the new
protocol, and a classic one again when the last such member leaves. In between, its classic members join, sync and
heartbeat as ever; their generation is their epoch.

**Offsets** (`offsets`) do not depend on the kind of group. A commit names the topic by its id as well: an offset of a
topic that was deleted is not one of a later topic of that name. Offsets expire when nobody reads their topic (KIP-211).

**The log** (`log`, `consumer_records`). All of it is written to `__consumer_offsets`, in Kafka's formats, and a request
is answered when what it has changed is on disk. What is in memory is what the log says at its end; a start reads it
(`loading`). A change of a group is one batch, so a crash leaves all of it or nothing; only one that is too large for
its topic takes several, in an order from which a start can go on.

**Memory** (`memory`, `making_room`) is bounded, and half of it is for one client address at most.

To follow a member from its join to its assignment, read `handlers/join_group`, `coordinator.group_to_join`,
`classic.join` and `handlers/sync_group`; or `handlers/consumer_group_heartbeat`, `coordinator.consumer_group`,
`consumer.consumer_heartbeat` and `consumer_member.reconciled`. A request that waits for others is a coroutine that
awaits a `Reply` (`services`). What other members rely on goes on when the client that began it leaves: it is done by
timers and callbacks of the group, not by that coroutine.
"""
