package main

import (
	"net/http"
	"slices"

	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/stage"
	"tranche/coordinator"
)

// operate runs a command of an operator against the first coordinator, and fails with what it printed.
func (th *theatre) operate(args ...string) (printed string) {
	th.t.Helper()
	status, printed := inProcess(append(slices.Clone(args), "--coordinator", th.Coordinators[0].Address, "--token", th.AdminToken)...)
	if status != 0 {
		th.t.Fatalf("%v ended with %d: %s", args, status, printed)
	}
	return printed
}

// silent waits until the region's silence is noticed.
func (th *theatre) silent(region string) {
	th.t.Helper()
	err := stage.Until(th.t.Context(), progressWait, region+" is not in contact", func() (bool, error) {
		s, err := th.status()
		i := slices.IndexFunc(s.Regions, func(r coordinator.RegionAnswer) bool { return r.Region == region })
		return err == nil && i >= 0 && !s.Regions[i].InContact, err
	})
	if err != nil {
		th.t.Fatal(err)
	}
}

func (th *theatre) status() (s coordinator.Status, err error) {
	admin, err := th.Admin(0)
	if err == nil {
		_, err = admin.Do(th.t.Context(), api.Call{Method: http.MethodGet, Path: "/v1/status"}, &s)
	}
	return s, err
}
