package allocation

// Tell is what a region says of an admission that it knows: the first answer with the present state, as a replay would
// get it.
func Tell(region string, a *Admission) Decision {
	l := Locked{Catalogue: NewCatalogue(region)}
	return l.answer(Request{Op: a.Op, Key: a.IDKey}, a, true)
}
