package ownertest

import (
	"slices"

	"tranche/allocation"
)

// forgetsRemoved continues with an owner that knows of eu and us. Only what is said to be removed is forgotten: an etcd that
// went back may not know of a region that holds permits.
func (o *owner) forgetsRemoved(answer allocation.SyncAnswer) {
	answer.Regions, answer.Removed = []string{"ap"}, []string{"us"}
	o.apply(answer)
	call, err := o.Owner.Statements(o.Context(), o.w, nil)
	o.must(err)
	if !slices.Equal(call.Regions, []string{"ap", "eu"}) {
		o.Fatalf("after us was removed: %v", call.Regions)
	}
}
