package regional

import "tranche/allocation"

// Refusals that are made at the door are counted with the others, by the node, if it counts.

// refusalNoter is a Backend that counts refusals which never came to Decide.
type refusalNoter interface {
	NoteRefusal(r allocation.Request, d *allocation.Decision)
}

// note tells the node of a refusal that it did not decide.
func (a *api) note(r allocation.Request, d *allocation.Decision) {
	n, counts := a.Backend.(refusalNoter)
	if !counts {
		return
	}
	if d.At == 0 {
		d.At = a.config.Now().UnixMicro()
	}
	n.NoteRefusal(r, d)
}

// beyond is the fault of a call that asks for more than its credential may.
func (a *api) beyond(caller string, b *callBody, detail string) *fault {
	f := reasonFault(allocation.ScopeDenied, detail)
	if len(b.items) > 0 {
		b = &b.items[0]
	}
	f.noted = &allocation.Request{
		Op: b.op, Key: allocation.IDKey{Credential: caller, Tenant: b.labels[tenantLabel], ID: b.id}, Labels: b.labels, Costs: b.costs, Priority: b.priority,
	}
	return &f
}

// refuses is the admission that a call of this route would have asked for; nil if it asks for none. Its body was not read.
func (r *route) refuses(caller string) *allocation.Request {
	if r.op != allocation.Spend && !r.gateway {
		return nil
	}
	return &allocation.Request{Op: allocation.Spend, Key: allocation.IDKey{Credential: caller}}
}
