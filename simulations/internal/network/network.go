// Package network carries messages between simulated processes, and loses, repeats, delays and cuts them off as it is told.
//
//	caller ──request──▶ server: a task of its own runs `serve` ──answer──▶ caller
//	          │                                                   │
//	          └ Link(caller, server): lost, late, repeated        └ Link(server, caller): lost, late
//
// A request that was sent arrives whatever becomes of the caller: it may have stopped waiting, or have crashed. Each
// direction is a link of its own, so that a partition may be partial and one-way.
package network

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"tranche/simulations/internal/world"
)

// Conditions are what one direction between two processes does to messages.
type Conditions struct {
	Least, Most time.Duration // how long a message takes
	Lose        float64       // the chance that it is lost
	Repeat      float64       // the chance that a request comes twice; of Exchange only
	Late        float64       // the chance that it takes up to LateMost instead
	LateMost    time.Duration
	Cut         bool // nothing gets through that is sent now
}

// Kind says what a lost message means to the caller.
type Kind int

// The kinds of a call.
const (
	// Exchange is a request over HTTP: proxies and retries may repeat it, and one that is lost is silence.
	Exchange Kind = iota
	// Connection is a request over a connection that is kept: nothing comes twice, and a loss breaks it sooner or later.
	Connection
)

// What a caller learns instead of an answer.
var (
	// ErrRefused: nothing listens there. The request was not served, and will not be.
	ErrRefused = errors.New("connection refused")
	// ErrBroken: the connection ended. Whether the request was served is not known.
	ErrBroken = errors.New("connection broken")
)

const (
	// longestServe bounds how long a server works on one request.
	longestServe = time.Minute
	// brokenWithin is how long it takes to notice that a connection is broken, if somebody says so.
	brokenWithin = time.Second
	// silentAtLeast and silentMost are how long it takes if nobody does: until keep-alives stay unanswered.
	silentAtLeast, silentMost = 10 * time.Second, 13 * time.Second
)

type pair struct{ from, to string }

// Net is the network of one world.
type Net struct {
	Default Conditions // of links that are used for the first time

	world   *world.World
	random  *rand.Rand
	links   map[pair]*Conditions
	serving map[string][]*open // by server
}

// open is a request that is being served.
type open struct {
	broken func()
	place  int
}

// New makes a network whose messages take 0.2 to 1 ms.
func New(w *world.World) *Net {
	return &Net{
		Default: Conditions{Least: 200 * time.Microsecond, Most: time.Millisecond, LateMost: time.Minute},
		world:   w, random: w.Random("network"), links: map[pair]*Conditions{}, serving: map[string][]*open{},
	}
}

// Link is one direction between two processes, to be changed at any time.
func (n *Net) Link(from, to string) *Conditions {
	l := n.links[pair{from, to}]
	if l == nil {
		c := n.Default
		l = &c
		n.links[pair{from, to}] = l
	}
	return l
}

// Cut stops everything between two processes, or lets it through again.
func (n *Net) Cut(a, b string, cut bool) {
	n.Link(a, b).Cut, n.Link(b, a).Cut = cut, cut
}

// Far makes messages between two processes take up to so long each way, also when all is healed.
func (n *Net) Far(a, b string, most time.Duration) {
	for _, l := range []*Conditions{n.Link(a, b), n.Link(b, a)} {
		l.Least, l.Most = most/2, most
	}
}

// Heal makes all links lose, repeat, delay and cut nothing any more. What is on its way comes as it would have.
func (n *Net) Heal() {
	for _, l := range n.links {
		*l = Conditions{Least: l.Least, Most: l.Most, LateMost: l.LateMost}
	}
	d := n.Default
	n.Default = Conditions{Least: d.Least, Most: d.Most, LateMost: d.LateMost}
	n.world.Trace("net.heal", "")
}

// Post sends a message that has no answer. When it arrives, f is called within the scheduler. It says whether the message
// is on its way.
func (n *Net) Post(from, to *world.Process, name string, f func()) bool {
	_, sent := n.post(from, to, name, f)
	return sent
}

// post also says how long the message takes.
func (n *Net) post(from, to *world.Process, name string, f func()) (takes time.Duration, sent bool) {
	l := n.Link(from.Name(), to.Name())
	switch {
	case l.Cut:
		return 0, false
	case l.Lose > 0 && n.random.Float64() < l.Lose:
		n.world.Trace("net.lost", name+" to "+to.Name())
		return 0, false
	}
	takes = n.delay(l, to, name)
	n.world.After(takes, f)
	return takes, true
}

func (n *Net) delay(l *Conditions, to *world.Process, name string) time.Duration {
	if l.Late > 0 && n.random.Float64() < l.Late {
		d := time.Duration(n.random.Int64N(int64(max(1, l.LateMost))))
		n.world.Trace("net.late", name+" to "+to.Name()+" "+d.String())
		return d
	}
	d := l.Least
	if l.Most > l.Least {
		d += time.Duration(n.random.Int64N(int64(l.Most - l.Least)))
	}
	return d
}

// Pending is a request on its way.
type Pending[T any] struct {
	net      *Net
	from, to *world.Process
	name     string
	done     bool
	value    T
	err      error
	wake     world.Wake
	given    bool     // the caller gave it up
	told     bool     // and the server heard so
	stops    []func() // of those that serve it
}

// Start sends a request. Serve runs as a task of the server, with a context that ends with the server, after a minute, or
// when it has heard that the caller gave up.
func Start[T any](n *Net, from, to *world.Process, kind Kind, name string, serve func(ctx context.Context) T) *Pending[T] {
	p := &Pending[T]{net: n, from: from, to: to, name: name}
	arrive := func() { p.arrive(kind, serve) }
	takes, sent := n.post(from, to, name, arrive)
	p.sent(kind, takes, sent)
	if !sent {
		return p
	}
	if l := n.Link(from.Name(), to.Name()); kind == Exchange && l.Repeat > 0 && n.random.Float64() < l.Repeat {
		n.world.Trace("net.repeat", name+" to "+to.Name())
		n.Post(from, to, name, arrive)
	}
	return p
}

// sent arranges what the caller notices of a message that is lost, or that takes longer than a connection is silent: what
// is late may arrive all the same, when nobody waits for it any more.
func (p *Pending[T]) sent(kind Kind, takes time.Duration, sent bool) {
	if kind != Connection || sent && takes < silentAtLeast {
		return
	}
	noticed := silentAtLeast + time.Duration(p.net.random.Int64N(int64(silentMost-silentAtLeast)))
	if !sent && p.net.random.IntN(2) == 0 {
		noticed = time.Duration(p.net.random.Int64N(int64(brokenWithin)))
	}
	p.net.world.After(noticed, func() { p.finish(ErrBroken) })
}

func (p *Pending[T]) arrive(kind Kind, serve func(ctx context.Context) T) {
	n := p.net
	if !p.to.Up() {
		p.tell(kind, " refused", ErrRefused)
		return
	}
	request := n.enter(p.to, func() { p.tell(kind, " broken", ErrBroken) })
	p.to.Go(p.name, func() {
		ctx, cancel := p.to.WithTimeout(p.to.Context(), longestServe)
		defer cancel()
		if p.told {
			cancel()
		}
		p.stops = append(p.stops, cancel)
		value := serve(ctx)
		n.leave(p.to, request)
		takes, sent := n.post(p.to, p.from, p.name+" answer", func() {
			if !p.done {
				p.value = value
				p.finish(nil)
			}
		})
		p.sent(kind, takes, sent)
	})
}

// tell tells the caller of an end without an answer, which may be lost as well.
func (p *Pending[T]) tell(kind Kind, what string, err error) {
	takes, sent := p.net.post(p.to, p.from, p.name+what, func() { p.finish(err) })
	p.sent(kind, takes, sent)
}

func (p *Pending[T]) finish(err error) {
	if p.done {
		return
	}
	p.done, p.err = true, err
	if p.wake != nil {
		p.wake()
	}
}

// Wait waits for the answer. When ctx ends first, the error is ctx's, and Wait may be called again.
func (p *Pending[T]) Wait(ctx context.Context) (T, error) {
	if !p.done {
		if err := p.net.world.Await(ctx, "the answer to "+p.name, func(wake world.Wake) { p.wake = wake }); err != nil && !p.done {
			var none T
			return none, err
		}
		p.wake = nil
	}
	return p.value, p.err
}

// GiveUp tells the server, if the word gets through, that nobody waits for the answer any more.
func (p *Pending[T]) GiveUp() {
	if p.done || p.given {
		return
	}
	p.given = true
	p.net.Post(p.from, p.to, p.name+" given up", func() {
		p.told = true
		for _, stop := range p.stops {
			stop()
		}
	})
}

// Call sends a request and waits for its answer.
func Call[T any](ctx context.Context, n *Net, from, to *world.Process, kind Kind, name string, serve func(ctx context.Context) T) (T, error) {
	if err := ctx.Err(); err != nil {
		var none T
		n.world.Point()
		return none, err
	}
	p := Start(n, from, to, kind, name, serve)
	value, err := p.Wait(ctx)
	if err != nil {
		p.GiveUp()
	}
	return value, err
}

// enter notes a request that is served; broken is called if the server ends meanwhile.
func (n *Net) enter(to *world.Process, broken func()) *open {
	list, known := n.serving[to.Name()]
	if !known {
		to.OnEnd(func() {
			list := n.serving[to.Name()]
			n.serving[to.Name()] = nil
			for _, o := range list {
				o.place = -1
				o.broken()
			}
		})
	}
	o := &open{broken: broken, place: len(list)}
	n.serving[to.Name()] = append(list, o)
	return o
}

func (n *Net) leave(to *world.Process, o *open) {
	if o.place < 0 {
		return
	}
	list := n.serving[to.Name()]
	last := len(list) - 1
	list[o.place] = list[last]
	list[o.place].place = o.place
	list[last] = nil
	n.serving[to.Name()] = list[:last]
}
