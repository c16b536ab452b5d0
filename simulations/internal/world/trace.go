package world

import (
	"io"
	"strconv"
	"strings"
)

// The columns of a line of the trace.
const (
	widthTime    = 20 // seconds since the start and nanoseconds, to the right
	widthProcess = 16
	widthTask    = 16
	widthEvent   = 16
	widthDetail  = 72
	// LineWidth is the length of every line, its line feed included.
	LineWidth = widthTime + widthProcess + widthTask + widthEvent + widthDetail + 5
)

// Line is one event of the trace. Written, all lines are LineWidth bytes long, with the columns
//
//	time (world's own, seconds)  process  task  event  detail
//
// separated by one space and cut where they are too long:
//
//	12.004211937 us/node-1        lane-0           pg.begin         rows 1 ids 1
type Line struct {
	Time    int64 // nanoseconds since the start
	Process string
	Task    string
	Event   string
	Detail  string
}

// Append writes the line.
func (l Line) Append(b []byte) []byte {
	start := len(b)
	b = strconv.AppendInt(b, l.Time/1e9, 10)
	b = append(b, '.')
	nanos := strconv.AppendInt(nil, l.Time%1e9+1e9, 10)
	b = append(b, nanos[1:]...)
	if missing := widthTime - (len(b) - start); missing > 0 {
		b = append(b, strings.Repeat(" ", missing)...)
		copy(b[start+missing:], b[start:len(b)-missing])
		copy(b[start:], strings.Repeat(" ", missing))
	}
	b = column(b, l.Process, widthProcess)
	b = column(b, l.Task, widthTask)
	b = column(b, l.Event, widthEvent)
	b = column(b, l.Detail, widthDetail)
	return append(b, '\n')
}

// blanks are as many as the widest column has bytes.
var blanks = strings.Repeat(" ", widthDetail)

func column(b []byte, s string, width int) []byte {
	b = append(b, ' ')
	s = s[:min(len(s), width)]
	start := len(b)
	b = append(b, s...)
	for i := start; i < len(b); i++ {
		if b[i] < ' ' {
			b[i] = ' '
		}
	}
	return append(b, blanks[:width-len(s)]...)
}

// trace keeps the latest lines, and writes all if it is told where to.
type trace struct {
	to       io.Writer
	keep     int
	switches bool
	ring     []Line
	next     int
	buffer   []byte
	err      error
}

func (t *trace) add(now int64, process, task, event, detail string) {
	l := Line{Time: now, Process: process, Task: task, Event: event, Detail: detail}
	switch {
	case len(t.ring) < t.keep:
		t.ring = append(t.ring, l)
	case t.keep > 0:
		t.ring[t.next] = l
		t.next = (t.next + 1) % t.keep
	}
	if t.to != nil && t.err == nil {
		t.buffer = l.Append(t.buffer[:0])
		_, t.err = t.to.Write(t.buffer)
	}
}

// Trace adds a line for the task that runs.
func (w *World) Trace(event, detail string) {
	process, task := "world", "-"
	if t := w.current; t != nil {
		process, task = t.process.name, t.name
	}
	w.trace.add(w.now, process, task, event, detail)
}

// Lines are the latest lines of the trace, oldest first, as many as the ring holds.
func (w *World) Lines() []Line {
	return append(append([]Line(nil), w.trace.ring[w.trace.next:]...), w.trace.ring[:w.trace.next]...)
}

// WriteLines writes the latest lines of the trace, at most so many.
func (w *World) WriteLines(to io.Writer, most int) error {
	lines := w.Lines()
	var b []byte
	for _, l := range lines[max(0, len(lines)-most):] {
		b = l.Append(b)
	}
	_, err := to.Write(b)
	return err
}
