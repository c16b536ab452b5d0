package regional

import (
	"testing"
	"time"

	"tranche/allocation"
)

// crowdedQueue is one that two lanes' worth of load keeps busy, and a way to let time pass in it: every 50 ms a lane takes
// 500 calls, and as many of each class come as are asked for.
type crowdedQueue struct {
	queue
	at    time.Time
	taken [classes]int
	asked [classes]int
}

func newCrowdedQueue() *crowdedQueue {
	q := &crowdedQueue{at: time.Unix(0, 0)}
	q.some, q.now = Real{}.NewSignal(), func() time.Time { return q.at }
	return q
}

func (q *crowdedQueue) push(n int, of class) (taken int) {
	for range n {
		if q.queue.push(&call{deadline: q.at.Add(time.Second), class: of}) {
			taken++
		}
	}
	return taken
}

func (q *crowdedQueue) pass(rounds int, each [classes]int) {
	for range rounds {
		for _, of := range []class{classBatch, classInteractive, classFirst} { // the worst order
			q.asked[of] += each[of]
			q.taken[of] += q.push(each[of], of)
		}
		q.at = q.at.Add(50 * time.Millisecond)
		q.take(nil, 500)
	}
}

// Who is refused under overload is not left to who comes first: batch work gives way to interactive, and both to what is
// essential, also if twice what the lanes can take is asked for in all.
func TestWhoIsRefusedFirst(t *testing.T) {
	q := newCrowdedQueue()
	q.pass(100, [classes]int{200, 400, 400}) // 500 of these 1,000 can be taken
	part := func(of class) float64 { return float64(q.taken[of]) / float64(q.asked[of]) }
	if part(classFirst) < 1 {
		t.Errorf("%.2f of what is essential was taken", part(classFirst))
	}
	if part(classInteractive) < 0.65 || part(classInteractive) > 0.95 {
		t.Errorf("%.2f of the interactive requests were taken, of which there is room for three quarters", part(classInteractive))
	}
	if part(classBatch) > 0.15 { // what came before the lines were full
		t.Errorf("%.2f of the batch requests were taken", part(classBatch))
	}
	for i := range q.lines {
		if n := q.lines[i].length(); class(i) != classFirst && n < MaxBatchRequests/2 || n > queueMost {
			t.Errorf("%d wait in line %d", n, i)
		}
	}
	q.pass(40, [classes]int{0, 0, 400}) // once the others are gone, batch work is taken again
	if before := q.taken[classBatch]; before == 0 || q.push(400, classBatch) != 400 {
		t.Errorf("batch work is refused for ever")
	}
}

// Lanes take what is essential first, and what is of one class in its order.
func TestOrderOfLines(t *testing.T) {
	q := newCrowdedQueue()
	var want []*call
	for _, of := range []class{classFirst, classInteractive, classBatch} {
		for range 3 {
			want = append(want, &call{class: of, deadline: q.at.Add(time.Second)})
		}
	}
	for _, i := range []int{6, 3, 0, 7, 1, 4, 5, 2, 8} {
		q.queue.push(want[i])
	}
	var got []*call
	for _, most := range []int{2, 5, 9} {
		got = append(got, q.take(nil, most)...)
	}
	if len(got) != len(want) || q.length != 0 {
		t.Fatalf("%d were taken, %d are left", len(got), q.length)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("the %d. is of class %d", i, got[i].class)
		}
	}
}

// What only wants to know whether there is room must be told what push would say.
func TestNoRoomIsWhatPushSays(t *testing.T) {
	q := newCrowdedQueue()
	both := [2]int{}
	for round := range 300 {
		q.pass(1, [classes]int{100 + round%5*40, 200, 300})
		q.push(200, classBatch) // since the last batch was taken
		for of := range classes {
			for _, left := range []time.Duration{10 * time.Millisecond, time.Second, 30 * time.Second} {
				told := q.crowd.noRoom(of, left)
				if taken := q.queue.push(&call{deadline: q.at.Add(left), class: of}); taken == told {
					t.Errorf("no room is %v, but taken is %v", told, taken)
				}
				if told {
					both[0]++
				} else {
					both[1]++
				}
			}
		}
	}
	if both[0] < 50 || both[1] < 50 {
		t.Errorf("%d had no room and %d had: the cases do not differ", both[0], both[1])
	}
	full := newCrowdedQueue()
	if taken := full.push(2*queueMost, classBatch); taken != classBatch.room() {
		t.Errorf("%d batch requests fill the queue", taken)
	}
	if taken := full.push(2*queueMost, classFirst); taken != queueMost-classBatch.room() || !full.crowd.noRoom(classFirst, time.Hour) {
		t.Errorf("%d more were taken", taken)
	}
}

// A key's own word is not enough to go before others.
func TestClassOfRequests(t *testing.T) {
	presented, whole := allocation.Present(worldKey)
	if !whole {
		t.Fatal("no key")
	}
	n := NewNode(Config{Region: "us-east"}, nil)
	for what, c := range map[string]struct {
		request allocation.Request
		want    class
	}{
		"batch":       {allocation.Request{Op: allocation.Spend, Priority: allocation.Batch}, classBatch},
		"none":        {allocation.Request{Op: allocation.Reserve}, classInteractive},
		"essential":   {allocation.Request{Op: allocation.Spend, Priority: allocation.Essential}, classFirst},
		"settle":      {allocation.Request{Op: allocation.Settle}, classFirst},
		"unknown key": {allocation.Request{Op: allocation.Spend, Priority: allocation.Essential, Presented: presented}, classInteractive},
	} {
		if got := n.classOf(&c.request); got != c.want {
			t.Errorf("%s: class %d, want %d", what, got, c.want)
		}
	}
	for essential, want := range map[bool]class{false: classInteractive, true: classFirst} {
		n := NewNode(Config{Region: "us-east"}, nil)
		n.catalogue.Store(n.catalogue.Load().WithDocuments([]allocation.Document{keyDocument(func(k *allocation.Key) { k.Essential = essential })}))
		if got := n.classOf(&allocation.Request{Op: allocation.Spend, Priority: allocation.Essential, Presented: presented}); got != want {
			t.Errorf("a key that may say essential (%v): class %d, want %d", essential, got, want)
		}
	}
}

// Under overload most of what a node does is to refuse, so that must cost next to nothing.
func TestRefusedAtOnceCostsLittle(t *testing.T) {
	n := NewNode(Config{Region: "us-east"}, nil)
	n.stopped.Store(nil)
	n.waiting.crowd.waiting.Store(queueMost)
	requests := []allocation.Request{{Op: allocation.Spend, Key: allocation.IDKey{ID: "a"}}}
	deadline := n.now().Add(time.Second)
	if d := n.Decide(t.Context(), requests, deadline); d[0].Reason != allocation.Overloaded || d[0].Retry == 0 {
		t.Fatalf("%+v", d)
	}
	if got := testing.AllocsPerRun(100, func() { n.Decide(t.Context(), requests, deadline) }); got > 2 {
		t.Errorf("%v allocations", got)
	}
}
