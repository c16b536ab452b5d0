package cli

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/settings"
	"tranche/coordinator"
)

// A block that is made at a node while its region is cut off is known there only. So the nodes are asked, also of regions in
// contact: it may have been made a moment ago.

// readBlocks enters into an exposure the blocks that only nodes know.
func (e *exposureAnswer) readBlocks(ctx context.Context, s settings.Settings, nodes map[string][]string) {
	for i := range e.Regions {
		r := &e.Regions[i]
		addresses, called := nodes[r.Region]
		if !called {
			continue // nothing is admitted there yet
		}
		var list struct {
			Blocks []nodeBlock `json:"blocks"`
		}
		if why := askNodes(ctx, s, r.Region, addresses, api.Call{Method: http.MethodGet, Path: "/v1/blocks"}, &list); why != "" {
			if e.Unread == nil {
				e.Unread = map[string]string{}
			}
			e.Unread[r.Region] = why
			continue
		}
		for _, b := range list.Blocks { // what the nodes go by counts: it may have been lifted there, or here only
			before := len(r.Blocks)
			r.Blocks = slices.DeleteFunc(r.Blocks, func(o coordinator.RegionBlock) bool { return o.ID == b.ID })
			if found, some := e.Subject.RegionBlock(b.ID, b.Block); some && b.InForce && len(b.Regions) > 0 {
				found.Told = b.Told || len(r.Blocks) < before // the node hears last that it was told
				r.Blocks = append(r.Blocks, found)
			}
		}
	}
}

// askNodes asks the nodes of a region, in turn, until one answers; else it says why none did.
func askNodes(ctx context.Context, s settings.Settings, region string, addresses []string, call api.Call, out any) (why string) {
	why = "no node of it says where it is: give --node " + region + "=URL"
	for _, address := range addresses {
		node, err := api.New("node", address, s.NodeToken, s.CA)
		if err == nil {
			_, err = node.Do(ctx, call, out)
			node.Close()
		}
		if err == nil {
			return ""
		}
		why = err.Error()
	}
	return why
}

func blockWords(c coordinator.Cut) string {
	if c.Block == "" || c.Until == nil {
		return ""
	}
	return fmt.Sprintf(" until %s (block %s)", *c.Until, c.Block)
}

func regionBlockWords(b coordinator.RegionBlock) string {
	what := "all of it"
	if !b.Every {
		what = "some of it"
	}
	return fmt.Sprintf("block %s (%s, by %s) refuses %s there until %s%s", b.ID, b.Says, b.By, what, b.Until, yes(!b.Told, "; the coordinator was not told of it yet"))
}
