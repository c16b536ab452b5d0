package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// kase is one case of the benchmark.
type kase struct {
	Name, What string
	users      bool // measured without --all
	run        func(ctx context.Context, b *bench, result *Case) error
}

func cases() []kase {
	return []kase{
		{"hot", "one budget that all callers spend from", true, hot},
	}
}

// Line is a case, for a list.
type Line struct {
	Name string `json:"name"`
	What string `json:"what"`
	All  bool   `json:"all"` // only with --all, or by name
}

// List is the cases that there are.
func List() (lines []Line) {
	for _, k := range cases() {
		lines = append(lines, Line{k.Name, k.What, !k.users})
	}
	return lines
}

// Known says what is wrong with the names of cases.
func Known(names []string) error {
	var known []string
	for _, k := range cases() {
		known = append(known, k.Name)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("there is no case %q; there are %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}

// chosen is the cases that are to be measured.
func (b *bench) chosen() (list []kase, err error) {
	if err := Known(b.Cases); err != nil {
		return nil, err
	}
	for _, k := range cases() {
		if len(b.Cases) > 0 && slices.Contains(b.Cases, k.Name) || len(b.Cases) == 0 && (k.users || b.All) {
			list = append(list, k)
		}
	}
	return list, nil
}

// plenty is a limit that no case reaches.
const plenty = 1 << 50

func budget(name string, limit int64, match string) string {
	return fmt.Sprintf(`{"budget":%q,"unit":"requests","limit":%d,"window":{"once":{"from":"2020-01-01T00:00:00Z"}},"match":%s,"allocation":{"policy":"home","region":%q}}`,
		name, limit, match, region)
}
