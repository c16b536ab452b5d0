package bench

import (
	"errors"
	"fmt"
	"time"
)

// Load is what a deployment is to be sized for.
type Load struct {
	Admissions float64       // a second and region, on the mean over a day
	Peak       float64       // a second and region, at most; 0: three times Admissions
	Regions    int           // of the deployment
	Nodes      int           // of each region
	Pool       int           // connections of each node
	Budgets    int           // declared
	Rows       int           // usage rows that a region makes in a day: a budget or an instance in one period
	Retention  time.Duration // of admission ids
}

// Size is what it takes.
type Size struct {
	Load        Load    `json:"load"`
	IDBytes     int64   `json:"region_id_bytes"`           // of admission ids, at most: one and a half times the retention
	UsageBytes  int64   `json:"region_usage_bytes"`        // of usage rows, for as long
	LogBytes    int64   `json:"region_log_bytes_per_day"`  // written-ahead log, to archive or to send to replicas
	DiskBytes   int64   `json:"region_disk_bytes"`         // to provide: the rows, and room for the log
	Connections int     `json:"region_connections"`        // max_connections of the region's Postgres must hold them
	Processors  float64 `json:"region_processors_at_peak"` // of the nodes and Postgres together, as measured on this page's machine
	EtcdBytes   int64   `json:"etcd_bytes"`                // keys and values
	MemoryBytes int64   `json:"coordinator_memory_bytes"`  // of each replica
	EtcdWrites  float64 `json:"etcd_writes_per_s"`         // at most: what each region states, every 2 s
	PerDay      int64   `json:"region_disk_bytes_per_day"` // that a day's admissions take, before they are forgotten
}

// What was measured; deploy/docs/speed.md says how, and a test holds the first three to a database.
const (
	bytesPerID        = 800    // table and index, one budget a request, ids of 36 bytes that begin with the time
	logPerID          = 800    // written-ahead log, without the full pages after a checkpoint
	bytesPerUsage     = 800    // table and indexes of rows that are in use, with room for updates within the page
	logFullPages      = 1.3    // full pages after checkpoints, of 15 minutes
	microsPerDecision = 40.0   // of the processor, in batches of a hundred
	etcdPerBudget     = 3300   // a minute budget and its five or so terms, its audit and declaration
	etcdPerShare      = 2500   // and for each region: its part of these, and what it states of them
	closedPerBudget   = 6000   // records of a minute budget's terms of a day
	closedPerShare    = 4900   // and for each region
	heapPerBudget     = 24_000 // of a coordinator
	heapPerClosed     = 33_000 // and for each region: records of a minute budget's terms of a day
	poolSpare         = 13     // connections for superusers, backups and a person
)

// SizeOf says what a load takes.
func SizeOf(l Load) (Size, error) {
	if l.Peak == 0 {
		l.Peak = 3 * l.Admissions
	}
	switch {
	case l.Admissions < 0 || l.Admissions > 1e7:
		return Size{}, errors.New("admissions: use 0 to 10000000 a second")
	case l.Peak < l.Admissions:
		return Size{}, fmt.Errorf("peak: %g is below the mean of %g", l.Peak, l.Admissions)
	case l.Regions < 1 || l.Regions > 100:
		return Size{}, errors.New("regions: use 1 to 100")
	case l.Nodes < 1 || l.Nodes > 1000:
		return Size{}, errors.New("nodes: use 1 to 1000")
	case l.Pool < 1 || l.Pool > 1000:
		return Size{}, errors.New("connections: use 1 to 1000")
	case l.Budgets < 0 || l.Budgets > 10_000_000:
		return Size{}, errors.New("budgets: use 0 to 10000000")
	case l.Rows < 0:
		return Size{}, errors.New("rows: use 0 or more")
	case l.Retention < time.Minute || l.Retention > 366*24*time.Hour:
		return Size{}, errors.New("retention: use 1m to 8784h")
	}
	const day = 24 * time.Hour
	kept := 1.5 * float64(l.Retention) / float64(day) // days: an id is kept for the retention and up to half as long again
	daily := l.Admissions * day.Seconds()
	s := Size{
		Load:        l,
		IDBytes:     int64(daily * kept * bytesPerID),
		UsageBytes:  int64(float64(l.Rows) * max(1, kept) * bytesPerUsage),
		LogBytes:    int64(daily * logPerID * logFullPages),
		Connections: l.Nodes*l.Pool + poolSpare,
		Processors:  l.Peak * microsPerDecision / 1e6,
		EtcdBytes:   int64(l.Budgets) * int64(etcdPerBudget+closedPerBudget+l.Regions*(etcdPerShare+closedPerShare)),
		MemoryBytes: 64<<20 + int64(l.Budgets)*int64(heapPerBudget+l.Regions*heapPerClosed),
		EtcdWrites:  float64(l.Regions) * float64(min(256, l.Budgets)) / 2,
		PerDay:      int64(daily * bytesPerID),
	}
	s.DiskBytes = s.IDBytes + s.UsageBytes + 4<<30
	return s, nil
}
