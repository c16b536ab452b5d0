package fleet

import (
	"context"
	"fmt"
	"net/http"

	"tranche/allocation"
	"tranche/coordinator"
)

// adopt declares a replica of the stopped owner, which was promoted meanwhile, to be the region's. An owner that is stopped
// makes no call from which the coordinator could find out that it lives elsewhere, so the person says it, and runs the
// command again: `tranche regions adopt-failover`. The old primary is gone in every failover that is drawn.
func (c *moveCommand) adopt(ctx context.Context, home allocation.Home) error {
	r := c.person.call(ctx, "POST", "/v1/regions/"+c.region.name+"/adopt-failover", coordinator.AdoptRequest{Reason: "it was promoted", By: "Ada", Home: &home}, "")
	if r.status != http.StatusOK {
		return fmt.Errorf("adopt: %d %s", r.status, r.body)
	}
	c.fleet.notes["promoted databases that were adopted in a handover"]++
	return fmt.Errorf("%+v was promoted, and is adopted", home)
}
