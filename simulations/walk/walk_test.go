package walk

import (
	"os"
	"testing"
)

var base = []Config{
	{Name: "plain", Limit: 2, Moves: 2, Writes: 5, Incarnations: 1, Histories: 1},
	{Name: "reserve", Limit: 1, Moves: 1, Writes: 5, Reserve: 2, Incarnations: 1, Histories: 1},
	{Name: "late", Limit: 1, Moves: 2, Writes: 5, Late: true, Incarnations: 1, Histories: 1},
	{Name: "owner", Limit: 2, Moves: 1, Writes: 5, OwnerRestores: 1, Incarnations: 2, Histories: 1},
	{Name: "owner late", Limit: 1, Moves: 1, Writes: 5, OwnerRestores: 1, Late: true, Incarnations: 2, Histories: 1},
	{Name: "restart", Limit: 1, Moves: 1, Writes: 5, OwnerRestores: 1, Restarts: 1, Incarnations: 2, Histories: 1},
	{Name: "etcd", Demand: true, Limit: 1, Moves: 2, Writes: 5, EtcdRestores: 1, Incarnations: 1, Histories: 2},
	{Name: "etcd cold", Demand: true, Limit: 1, Moves: 2, Writes: 5, EtcdRestores: 1, Cold: true, Incarnations: 1, Histories: 2},
	{Name: "etcd late", Demand: true, Limit: 1, Moves: 2, Writes: 5, EtcdRestores: 1, Late: true, Incarnations: 1, Histories: 2},
	{Name: "etcd cold late", Demand: true, Limit: 1, Moves: 2, Writes: 5, EtcdRestores: 1, Cold: true, Late: true, Incarnations: 1, Histories: 2},
	{Name: "etcd moves", Limit: 1, Moves: 2, Writes: 5, EtcdRestores: 1, Incarnations: 1, Histories: 2},
	{Name: "ahead", Demand: true, Limit: 1, Moves: 2, Writes: 5, Ahead: true, EtcdRestores: 1, Incarnations: 1, Histories: 2},
	{Name: "both", Demand: true, Limit: 1, Moves: 2, Writes: 5, OwnerRestores: 1, EtcdRestores: 1, Incarnations: 2, Histories: 3},
	{Name: "copy", Limit: 1, Moves: 1, Writes: 5, Copy: true, Incarnations: 2, Histories: 1},
	{Name: "copy at home", Limit: 1, Moves: 1, Writes: 5, Copy: true, CopyAtHome: true, Incarnations: 2, Histories: 1},
	{Name: "seal", Limit: 2, Moves: 1, Writes: 5, Seal: true, Reserve: 1, Incarnations: 2, Histories: 1},
	{Name: "seal copy", Limit: 1, Moves: 0, Writes: 5, Seal: true, Copy: true, Incarnations: 2, Histories: 1},
	{Name: "seal restored", Told: true, Limit: 1, Moves: 0, Writes: 5, Seal: true, OwnerRestores: 1, Incarnations: 2, Histories: 1},
	{Name: "seal etcd", Limit: 1, Moves: 0, Writes: 5, Seal: true, EtcdRestores: 1, Incarnations: 2, Histories: 2},
	{Name: "join", Demand: true, Limit: 1, Moves: 2, Writes: 5, Join: true, EtcdRestores: 1, Incarnations: 1, Histories: 2},
	{Name: "forgetful", Limit: 2, Moves: 1, Writes: 5, OwnerRestores: 1, Forgetful: true, Incarnations: 2, Histories: 1},
	{Name: "two nodes", Limit: 2, Moves: 1, Writes: 5, OwnerRestores: 1, SecondNode: true, Incarnations: 2, Histories: 1},
}

func TestTry(t *testing.T) {
	if os.Getenv("TRY") == "" {
		return
	}
	for _, c := range base {
		c.MaxStates = 500_000
		t.Log("\n", Walk(c, nil))
	}
}
