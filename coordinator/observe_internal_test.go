package coordinator

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// stillClock stands until the test moves it.
type stillClock struct {
	Real
	at time.Time
}

func (c *stillClock) Now() time.Time { return c.at }

// An operator who reads the log must find when a region went away and came back, once each, and no alarm for regions that
// only this replica could not see.
func TestSilenceIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	clock := &stillClock{at: time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)}
	s := New(Config{Log: hclog.New(&hclog.LoggerOptions{Output: &log}), Runtime: clock})
	o := &observer{silent: map[string]time.Time{}}
	calls := func() Event {
		return Event{Item: put(contactKey("us-east"), Contact{Format: documentFormat, Region: "us-east", Incarnation: "a", Heard: clock.at.Unix(), At: clock.at})}
	}
	region := Event{Item: put(regionKey("us-east"), RegionDocument{Format: documentFormat, Region: "us-east", Incarnation: "a", Confirmed: true})}
	s.state.apply([]Event{region, calls()}, 1, true)
	look := func(after time.Duration, read, called bool, want ...string) {
		t.Helper()
		log.Reset()
		for end := clock.at.Add(after); clock.at.Before(end); {
			clock.at = clock.at.Add(time.Second)
			if read {
				s.mirror.reset(1, clock.at, func(error) {})
			}
			if called {
				s.state.apply([]Event{calls()}, 1, false)
			}
			s.observe(o)
		}
		lines := strings.Split(strings.TrimSuffix(log.String(), "\n"), "\n")
		if log.Len() == 0 {
			lines = nil
		}
		if len(lines) != len(want) {
			t.Fatalf("logged %q, not %q", lines, want)
		}
		for i, line := range lines {
			for word := range strings.SplitSeq(want[i], "|") {
				if !strings.Contains(line, word) {
					t.Errorf("%q does not stand in %s", word, line)
				}
			}
		}
	}
	look(20*time.Second, true, true)
	look(30*time.Second, true, false, "[WARN]|region is silent|region=us-east|since=2026-05-04T10:00:20Z")
	look(30*time.Second, true, true, "[INFO]|region calls again|silent_since=2026-05-04T10:00:20Z|for=31s")
	look(30*time.Second, false, false, "[WARN]|etcd does not answer|since=2026-05-04T10:01:20Z")
	look(5*time.Second, true, false, "[INFO]|etcd answers again|silent_since=2026-05-04T10:01:20Z|for=31s") // and no word of the region yet
	look(20*time.Second, true, true)
}
