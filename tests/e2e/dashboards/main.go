// Command dashboards makes the calls of Redpanda Console and of kminion, and judges the answers as they do.
//
//	dashboards console|kminion BOOTSTRAP TOPIC GROUP        prints: what=value, one a line
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

const offsetsTopic = "__consumer_offsets"

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	client := must(kgo.NewClient(kgo.SeedBrokers(os.Args[2])))
	defer client.Close()
	run := map[string]func(context.Context, *kgo.Client, string, string){"console": console, "kminion": kminion}
	run[os.Args[1]](ctx, client, os.Args[3], os.Args[4])
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func tell(what string, value any) {
	fmt.Printf("%s=%v\n", what, value)
}

// served asks for the table of APIs, by which both tools leave out what is not there.
func served(ctx context.Context, client *kgo.Client) *kversion.Versions {
	request := kmsg.NewApiVersionsRequest()
	request.ClientSoftwareName, request.ClientSoftwareVersion = "dashboards", "1"
	answer := must(request.RequestWith(ctx, client))
	check(kerr.ErrorForCode(answer.ErrorCode))
	return kversion.FromApiVersionsResponse(answer)
}

// console makes the calls of Redpanda Console: overview, brokers, topics, groups, quotas, users, reassignments.
func console(ctx context.Context, client *kgo.Client, topic, group string) {
	versions := served(ctx, client)
	tell("missing", missing(versions))

	admin := kadm.NewClient(client)
	metadata := must(admin.Metadata(ctx))
	tell("cluster.is.named", metadata.Cluster != "")
	tell("controller", metadata.Controller)
	hurt := 0
	metadata.Topics.EachPartition(func(each kadm.PartitionDetail) {
		if each.Err != nil || len(each.ISR) < len(each.Replicas) || len(each.OfflineReplicas) > 0 {
			hurt++
		}
	})
	tell("partitions.hurt", hurt)

	every := kadm.NewACLs().AnyResource().Allow().AllowHosts().Deny().DenyHosts().Operations(kadm.OpAny)
	acls := must(admin.DescribeACLs(ctx, every.ResourcePatternType(kadm.ACLPatternAny)))
	tell("acls", acls[0].Err == nil)

	bytes := int64(0)
	folders := must(admin.DescribeAllLogDirs(ctx, nil))
	folders.Each(func(each kadm.DescribedLogDir) {
		check(each.Err)
		bytes += each.Size()
	})
	tell("bytes.on.disk", bytes > 0)

	for _, each := range must(admin.DescribeBrokerConfigs(ctx, metadata.Controller)) {
		check(each.Err)
		tell("broker.configs", len(each.Configs) > 100)
	}
	for _, each := range must(admin.DescribeTopicConfigs(ctx, topic)) {
		check(each.Err)
		for _, config := range each.Configs {
			if config.Key == "retention.ms" {
				tell("retention.ms", *config.Value)
			}
		}
	}
	starts, ends := must(admin.ListStartOffsets(ctx, topic)), must(admin.ListEndOffsets(ctx, topic))
	records := int64(0)
	ends.Each(func(end kadm.ListedOffset) {
		check(end.Err)
		start, _ := starts.Lookup(topic, end.Partition)
		records += end.Offset - start.Offset
	})
	tell("records", records)

	lags := must(admin.Lag(ctx, group))
	check(lags.Error())
	tell("group.state", lags[group].State)
	tell("lag", lags[group].Lag.Total())
	tell("reassignments", len(must(admin.ListPartitionReassignments(ctx, metadata.Topics.TopicsSet()))))
	tell("quotas", len(must(admin.DescribeClientQuotas(ctx, false, nil))))
	tell("users", len(must(admin.DescribeUserSCRAMs(ctx))))

	quorum := kmsg.NewDescribeQuorumRequest()
	part, of := kmsg.NewDescribeQuorumRequestTopicPartition(), kmsg.NewDescribeQuorumRequestTopic()
	of.Topic, of.Partitions = "__cluster_metadata", append(of.Partitions, part)
	quorum.Topics = append(quorum.Topics, of)
	described := must(quorum.RequestWith(ctx, client)).Topics[0].Partitions[0]
	check(kerr.ErrorForCode(described.ErrorCode))
	tell("quorum", fmt.Sprintf("leader %d of %d", described.LeaderID, len(described.CurrentVoters)))
}

// missing names the endpoints of Redpanda Console that it switches off, as requests that they need are not served.
func missing(versions *kversion.Versions) []string {
	needed := map[string][]kmsg.Request{
		"cluster config":         {&kmsg.DescribeConfigsRequest{}},
		"consumer groups":        {&kmsg.DescribeGroupsRequest{}, &kmsg.ListGroupsRequest{}},
		"delete records":         {&kmsg.DeleteRecordsRequest{}},
		"edit groups":            {&kmsg.OffsetCommitRequest{}},
		"delete groups":          {&kmsg.DeleteGroupsRequest{}},
		"delete offsets":         {&kmsg.OffsetDeleteRequest{}},
		"list reassignments":     {&kmsg.ListPartitionReassignmentsRequest{}},
		"reassign partitions":    {&kmsg.IncrementalAlterConfigsRequest{}, &kmsg.AlterPartitionAssignmentsRequest{}},
		"list quotas":            {&kmsg.DescribeClientQuotasRequest{}},
		"list users":             {&kmsg.DescribeUserSCRAMCredentialsRequest{}},
		"create or delete users": {&kmsg.AlterUserSCRAMCredentialsRequest{}},
	}
	lacks := []string{}
	for name, requests := range needed {
		for _, request := range requests {
			if !versions.HasKey(request.Key()) {
				lacks = append(lacks, name)
			}
		}
	}
	sort.Strings(lacks)
	return lacks
}

// kminion makes the calls of kminion: the figures of topics and groups, and what it reads of the offsets topic.
func kminion(ctx context.Context, client *kgo.Client, topic, group string) {
	versions := served(ctx, client)
	tell("log.dirs", versions.HasKey((&kmsg.DescribeLogDirsRequest{}).Key()))

	listed := must(kmsg.NewPtrListGroupsRequest().RequestWith(ctx, client))
	check(kerr.ErrorForCode(listed.ErrorCode))
	describe := kmsg.NewDescribeGroupsRequest()
	for _, each := range listed.Groups {
		describe.Groups = append(describe.Groups, each.Group)
	}
	for _, each := range must(describe.RequestWith(ctx, client)).Groups {
		if each.Group == group {
			tell("group", fmt.Sprint(each.State, " ", each.ProtocolType, " ", len(each.Members)))
			assignment := kmsg.NewConsumerMemberAssignment()
			check(assignment.ReadFrom(each.Members[0].MemberAssignment))
			tell("group.reads", assignment.Topics[0].Partitions)
		}
	}
	fetch := kmsg.NewOffsetFetchRequest()
	fetch.Group = group
	tell("committed", committed(must(fetch.RequestWith(ctx, client)), topic))
	starts, ends := listOffsets(ctx, client, topic, -2), listOffsets(ctx, client, topic, -1)
	tell("offsets", fmt.Sprint(starts, " to ", ends))
	tell("committed.by.topic", followed(ctx, topic, group))
}

func committed(answer *kmsg.OffsetFetchResponse, topic string) int64 {
	check(kerr.ErrorForCode(answer.ErrorCode))
	sum := int64(0)
	for _, each := range answer.Topics {
		for _, partition := range each.Partitions {
			if each.Topic == topic {
				sum += partition.Offset
			}
		}
	}
	return sum
}

func listOffsets(ctx context.Context, client *kgo.Client, topic string, timestamp int64) map[int32]int64 {
	found := map[int32]int64{}
	metadata := kmsg.NewMetadataRequest()
	asked := kmsg.NewMetadataRequestTopic()
	asked.Topic = &topic
	metadata.Topics = append(metadata.Topics, asked)
	request := kmsg.NewListOffsetsRequest()
	for _, each := range must(metadata.RequestWith(ctx, client)).Topics {
		of := kmsg.NewListOffsetsRequestTopic()
		of.Topic = *each.Topic
		for _, partition := range each.Partitions {
			part := kmsg.NewListOffsetsRequestTopicPartition()
			part.Partition, part.Timestamp = partition.Partition, timestamp
			of.Partitions = append(of.Partitions, part)
		}
		request.Topics = append(request.Topics, of)
	}
	for _, each := range must(request.RequestWith(ctx, client)).Topics {
		for _, partition := range each.Partitions {
			check(kerr.ErrorForCode(partition.ErrorCode))
			found[partition.Partition] = partition.Offset
		}
	}
	return found
}

// followed reads the offsets topic to its end, and tells what the group has committed by the records there.
func followed(ctx context.Context, topic, group string) int64 {
	client := must(kgo.NewClient(
		kgo.SeedBrokers(os.Args[2]),
		kgo.ConsumeTopics(offsetsTopic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	))
	defer client.Close()
	left := listOffsets(ctx, client, offsetsTopic, -1)
	for partition, end := range left {
		if end == 0 {
			delete(left, partition)
		}
	}
	found := map[int32]int64{}
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			if record.Offset+1 >= left[record.Partition] {
				delete(left, record.Partition)
			}
			key := kmsg.NewOffsetCommitKey()
			if version := (&kbin.Reader{Src: record.Key}).Int16(); version > 1 {
				return
			}
			check(key.ReadFrom(record.Key))
			if key.Group != group || key.Topic != topic {
				return
			}
			if record.Value == nil { // a tombstone
				delete(found, key.Partition)
				return
			}
			value := kmsg.NewOffsetCommitValue()
			check(value.ReadFrom(record.Value))
			found[key.Partition] = value.Offset
		})
	}
	sum := int64(0)
	for _, offset := range found {
		sum += offset
	}
	return sum
}
