package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
)

// teller tells the steps: in words for people, or one JSON object each for programs.
type teller struct {
	out, err io.Writer
	json     bool
	started  time.Time
	number   int
}

// say is a line for people.
func (t *teller) say(format string, args ...any) {
	if !t.json {
		fmt.Fprintf(t.out, format+"\n", args...)
	}
}

// progress is a line about what takes its time; programs do not read it.
func (t *teller) progress(format string, args ...any) {
	to := t.out
	if t.json {
		to = t.err
	}
	fmt.Fprintf(to, "  · "+format+"\n", args...)
}

// fields are what a step found, for programs.
type fields map[string]any

// width is where lines for people are wrapped.
const width = 96

// step tells a step that went as promised: a paragraph for people, and lines that are printed as they are.
func (t *teller) step(name string, found fields, told string, lines ...string) {
	t.number++
	if t.json {
		object := fields{"ok": true, "number": t.number, "at_seconds": t.seconds()}
		maps.Copy(object, found)
		t.object(name, object)
		return
	}
	for i, line := range append(strings.Split(text.WrapSoft(told, width-4), "\n"), lines...) {
		prefix := "    "
		if i == 0 {
			prefix = fmt.Sprintf("%2d. ", t.number)
		}
		t.say("%s", strings.TrimRight(prefix+line, " "))
	}
}

// object prints one line for programs, the step's name first.
func (t *teller) object(name string, found any) {
	line, err := json.Marshal(found)
	if err != nil {
		panic("a step's fields are plain: " + err.Error())
	}
	fmt.Fprintf(t.out, "{\"step\":%q,%s\n", name, line[1:])
}

// seconds since the start, to a tenth.
func (t *teller) seconds() float64 {
	return float64(time.Since(t.started).Round(100*time.Millisecond)) / float64(time.Second)
}
