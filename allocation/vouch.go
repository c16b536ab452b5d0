package allocation

import "slices"

// A writer that remembers its last mark can tell by itself whether the store lost what it wrote. One that was started
// without memory cannot: it is vouched for, or it waits. And none can tell whether the store lost what others wrote after
// it: a database that goes back to a moment after the last commit of an idle node looks whole to that node. So a node
// whose connection broke, under which alone a database can go back, waits too, until everybody's last commit is known to
// be there.
//
//	a node          Starting until the coordinator answered a call of it: the owner still holds every mark ever stated,
//	                               and every other writer that is alive has gone on, or was waited for: what it has
//	                               committed since, the coordinator was not told
//	                         or until it saw another writer commit that is vouched for
//	                         or, if it has memory, until every other writer has gone on from its own mark (WentOn)
//	a coordinator   freezes until every region has stated under the new history (Standing.Contradict)
//	                         or until a coordinator that remembers its mark found it in place, and says so

// Vouches says whether an answer vouches for a node without memory: it answers a call that showed the node's own mark,
// so it was made since the node connected (a writer's id is never used again); it is no refusal; and it was given under
// the history and for the incarnation of the call. A coordinator whose history is frozen does not vouch: what it
// remembers of this owner may have gone back.
func (a SyncAnswer) Vouches(call SyncCall, own Mark) bool {
	return a.Refusal == "" && !a.Frozen && !call.Lost &&
		a.History == call.History && a.Incarnation == call.Incarnation && call.Incarnation != "" &&
		slices.ContainsFunc(call.Marks, own.Holds)
}

// WentOn says whether every writer but own that was there when a node connected has committed since: each compares its
// own mark in each transaction, so the database holds what all of them wrote. A writer that died keeps the others
// waiting: what it wrote last, nobody but the coordinator knows.
func WentOn(connected, now []Mark, own string) bool {
	return !slices.ContainsFunc(connected, func(c Mark) bool {
		moved := slices.ContainsFunc(now, func(m Mark) bool { return m.Writer == c.Writer && m.Count > c.Count })
		return c.Writer != own && !moved
	})
}

// Vouch is a coordinator's word that etcd did not go back: written in a transaction that found its own mark in place.
type Vouch struct {
	By      Mark    `json:"by"`      // of the coordinator that remembers, as it stood in that transaction
	For     string  `json:"for"`     // the writer without memory
	History History `json:"history"` // that both see
}

// Trusts says whether a coordinator without memory may grant: somebody with memory vouched for it under the history that
// etcd shows. Otherwise it begins a new history with Standing.Contradict, and grants when all regions have stated.
func (s Standing) Trusts(writer string, vouches []Vouch) bool {
	return slices.ContainsFunc(vouches, func(v Vouch) bool {
		return v.For == writer && v.By.Writer != writer && v.By.Count > 0 && v.History == s.History
	})
}
