package regional

import (
	"net/http"

	"tranche/allocation"
)

// keptPart is how much smaller the number of slots is that are kept for what is to be refused last.
const keptPart = 8

// serveReserved serves a call for which no slot is free in one of those that are kept: for calls that end an admission, and
// for credentials that may say that a request is essential. Whether this one is stands in its body, so a call for anything
// else is told that the node is full when that has been read. False: it was not served.
func (a *api) serveReserved(w http.ResponseWriter, r *http.Request, to *route, caller string, key allocation.Presented, full *fault) bool {
	writer, ours := w.(*statusWriter)
	ends := to.op != "" && !admits(to.op)
	if !ours || !ends && (to.op == "" || !a.mayBeEssential(caller, key)) {
		return false
	}
	select {
	case a.kept <- struct{}{}:
	default:
		return false
	}
	defer func() { <-a.kept }()
	if !ends {
		writer.kept = full
	}
	to.serve(w, r, caller)
	return true
}

func (a *api) mayBeEssential(caller string, p allocation.Presented) bool {
	if p == (allocation.Presented{}) {
		return a.tokens().mayBeEssential(caller)
	}
	k, known := a.Catalogue().KeyOf(p)
	return known && k.Essential
}

// crowdedOut is the answer to a call in a slot that is kept for essential requests, and is not one; nil: it may stay.
func crowdedOut(w http.ResponseWriter, b *callBody) *fault {
	writer, ours := w.(*statusWriter)
	if !ours || writer.kept == nil {
		return nil
	}
	essential := b.priority == allocation.Essential || len(b.items) > 0
	for i := range b.items {
		essential = essential && b.items[i].priority == allocation.Essential
	}
	if essential {
		return nil
	}
	return writer.kept
}
