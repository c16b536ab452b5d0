package fleet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"
)

func TestOne(t *testing.T) {
	from, to := uint64(1), uint64(5)
	if v := os.Getenv("SEED"); v != "" {
		from, _ = strconv.ParseUint(v, 10, 64)
		to = from
	}
	if v := os.Getenv("FROM"); v != "" {
		from, _ = strconv.ParseUint(v, 10, 64)
	}
	if v := os.Getenv("TO"); v != "" {
		to, _ = strconv.ParseUint(v, 10, 64)
	}
	for seed := from; seed <= to; seed++ {
		sum := sha256.New()
		o := Options{Seed: seed, Kind: os.Getenv("KIND")}
		if os.Getenv("HASH") != "" {
			o.Trace, o.Switches = sum, true
		}
		if p := os.Getenv("TRACE"); p != "" {
			file, _ := os.Create(p)
			defer file.Close()
			o.Trace = file
		}
		began := time.Now()
		r, err := Run(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		fmt.Printf("%d %s sim %s x%.0f dec %d adm %d commits %d rev %d periods %d stats %+v %s\n  %v %v\n", seed, took.Round(time.Millisecond), r.Simulated.Round(time.Second), r.Simulated.Seconds()/took.Seconds(),
			r.Decisions, r.Admitted, r.Commits, r.Revisions, r.Periods, r.Stats, hex.EncodeToString(sum.Sum(nil))[:12], r.Faults, r.Reasons)
		if r.Violation != nil {
			t.Errorf("seed %d: at %s %v\n%s", seed, r.Violation.At, r.Violation, r.Plan)
			if os.Getenv("LINES") != "" {
				var b []byte
				for _, l := range r.Lines {
					b = l.Append(b)
				}
				fmt.Println(string(b))
			}
		}
	}
}
