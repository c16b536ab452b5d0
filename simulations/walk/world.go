package walk

import (
	"fmt"

	"tranche/allocation"
)

// Bounds of every world. They are array sizes: a world is one comparable value, so that it can be copied and hashed.
const (
	regions   = 2
	databases = 3 // one owner per region, and a copy of a's that may run beside it
	writers   = 3 // rows of marks in one database
	terms     = 2 // the running one, and one that is opened ahead; each has one period
	copied    = 2 // index of the copy
	second    = 3 // index of a second node on a's database
	nodes     = 4
)

const (
	firstMinute allocation.Instant = 6000
	budgetName                     = "a"
)

func regionOf(d int) int { return d % copied } // the copy is a's

func regionName(r int) string { return string(rune('a' + r)) }

// history, mark and holder are small names for what allocation calls so. Stamps are numbers that are never used twice.
type history struct{ number, stamp uint8 }

func (h history) real() allocation.History {
	if h == (history{}) {
		return allocation.History{}
	}
	return allocation.History{Number: int64(h.number), Stamp: fmt.Sprint("h", h.stamp)}
}

// A mark's value is the line of the database that it was written in: two writes of one count differ in it.
type mark struct{ writer, count, line uint8 }

func (m mark) real() allocation.Mark {
	return allocation.Mark{Writer: fmt.Sprint("w", m.writer), Count: int64(m.count), Value: fmt.Sprint("l", m.line)}
}

func realMarks(marks [writers]mark) []allocation.Mark {
	var out []allocation.Mark
	for _, m := range marks {
		if m.writer > 0 {
			out = append(out, m.real())
		}
	}
	return out
}

func incarnation(r int, n uint8) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(regionName(r), n)
}

func homeOf(n uint8) allocation.Home {
	return allocation.Home{System: "s", Database: uint32(n) + 1, Timeline: 1}
}

// store is what etcd holds. Pointers are interned: equal values have one pointer.
type store struct {
	line       uint8 // its line of descent: the stamp of all generations made in it
	mark       uint8 // the coordinator's
	members    uint8
	registered uint8 // bits by region
	standing   *allocation.Standing
	regions    [regions]record
	ledgers    [terms]*allocation.Ledger // nil: not opened
}

// record is what etcd holds of one region.
type record struct {
	residence *allocation.Residence
	marks     [writers]mark // as stated
	known     uint8         // the regions that it has said to know of
}

// database is one owner's Postgres, or a backup of one.
type database struct {
	on          bool
	line        uint8 // rises with every restore and copy
	home        uint8
	incarnation uint8 // number within the region; 0: none
	history     history
	known       uint8 // regions that the coordinator named, bits
	shares      [terms]*allocation.Share
	usage       [terms]*allocation.Usage // nil: the period was not used yet
	open        [terms]uint8             // the open reservation; 0: none
	marks       [writers]mark
}

// node is one process that writes to a database.
type node struct {
	on      bool
	writer  uint8
	left    mark          // its memory
	vouched bool          // else it is starting
	seen    [writers]mark // what the database showed when it connected, while it is starting
	lost    bool          // it knows that its database lost history
}

// message is a call or an answer on its way; kind says which.
type message struct {
	kind        kind
	writer      uint8 // of the process that called
	own         mark  // its mark, as the call showed it
	history     history
	incarnation uint8
	home        uint8
	lost        bool
	known       uint8
	marks       [writers]mark
	statements  [terms]*allocation.ShareStatement

	// Of answers.
	refused     bool
	contradicts [writers]mark // marks that the owner was expected to hold
	frozen      bool
	asked       history // of the call
	askedFor    uint8   // incarnation of the call
	grants      [terms]*allocation.ShareGrant
}

type kind uint8

const (
	nothing kind = iota
	request
	answer
)

// truth is what really became of the permits of one period, in whatever database, also in those that were restored since.
type truth struct {
	spent uint8
	open  uint16 // reservations that nobody ended, bits by number
}

func (t truth) used() (n int64) {
	n = int64(t.spent)
	for o := t.open; o > 0; o &= o - 1 {
		n++
	}
	return n
}

// world is one state of everything.
type world struct {
	etcd, snapshot store
	snapped        bool
	memory         uint8 // the coordinator's own mark; 0: it has no memory
	dbs            [databases]database
	backup         database // of a's
	backed         bool
	nodes          [nodes]node
	calls, late    [databases]message
	seal           *allocation.Seal
	truth          [terms]truth

	// What was used of the bounds.
	moves, ownerRestores, etcdRestores, restarts, opens, reservations uint8
	lines, etcdLines, histories, writersMade                          uint8
	incarnations                                                      [regions]uint8
	waiting                                                           bool  // a cold coordinator, without ColdBeginsHistory
	confirmed                                                         uint8 // the regions that it heard, bits
	absent, sealed, copies, registered                                bool
}
