package walk

// Config is one small world: what it has, and what may happen in it, how often. Everything may happen in any order.
type Config struct {
	Name  string
	Limit int64

	Moves         int      // changes of who gets how much: rebalances of one permit, or new weights in a Demand world
	Demand        bool     // nothing is granted at first; each move gives all that is unallocated to one region, or to both
	Gives         []string // to whom each move of a Demand world goes; empty: to anybody
	Writes        int      // transactions of one database, as its writer counts them
	OwnerRestores int      // a's database goes back to a backup
	EtcdRestores  int      // etcd goes back to a snapshot
	Cold          bool     // no coordinator's memory outlives a restore of etcd
	Forgetful     bool     // a's node forgets its mark when its database is restored, whatever the coordinator was told of it
	Told          bool     // a's database goes back only when the coordinator was told all that was written
	Restarts      int      // a's node starts anew, without memory, once all it wrote was stated
	Whole         bool     // a call, its answer and what the owner does with it are one step; not for a in a Late world
	Late          bool     // one request or answer of a's database may be held back and come later, whatever happened meanwhile
	Ahead         bool     // a second term is opened, and used; the running one stays as it is
	Reserve       int      // reservations
	Seal          bool     // a's incarnation is sealed
	Copy          bool     // a copy of a's database runs beside it
	CopyAtHome    bool     // and looks the same: only marks tell
	CopySoon      bool     // and starts before the original has stated anything that the copy lacks
	SecondNode    bool     // a second process writes to a's database
	Join          bool     // b is registered while it runs
	Incarnations  int      // of each region
	Histories     int

	Off       map[Rule]bool // rules that are switched off
	MaxStates int           // 0: no bound
}

func (c Config) off(r Rule) bool { return c.Off[r] }

// Without is the same world with some rules switched off.
func (c Config) Without(rules ...Rule) Config {
	off := map[Rule]bool{}
	for r := range c.Off {
		off[r] = true
	}
	for _, r := range rules {
		off[r] = true
	}
	c.Off = off
	return c
}
