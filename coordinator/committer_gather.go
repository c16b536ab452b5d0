package coordinator

import "fmt"

// markBytes is what a transaction needs for the mark itself, compared and put: two keys and two values.
const markBytes = 1024

// check says whether a change can be a transaction of its own beside the mark, and how large it is.
func (c *Committer) check(change Change) (bytes int, err error) {
	t := Txn{Compares: change.Reads, Puts: change.Puts, Deletes: change.Deletes}
	if err := t.Check(); err != nil {
		return 0, err
	}
	keys := map[string]bool{}
	t.each(func(key string, value []byte, _ bool) {
		keys[key] = true
		bytes += len(key) + len(value)
	})
	if keys[markKey(c.Mark().Writer)] {
		return 0, fmt.Errorf("change touches the writer's own mark %s", markKey(c.Mark().Writer))
	}
	if len(keys) > MaxTxnDocuments-1 || bytes > MaxTxnBytes-markBytes {
		return 0, fmt.Errorf("%w: %d documents and %d bytes, at most %d and %d beside the mark",
			ErrTooLarge, len(keys), bytes, MaxTxnDocuments-1, MaxTxnBytes-markBytes)
	}
	return bytes, nil
}

// gather takes the waiting changes that fit into one transaction. One that does not fit holds back later ones that
// touch what it touches, so that nobody is overtaken on a document for ever.
func (c *Committer) gather() []*pending {
	var batch, rest []*pending
	life := c.Life()
	touched := touches{reads: map[string]bool{}, writes: map[string]bool{}}
	documents, bytes := map[string]bool{c.known.Key: true}, markBytes
	for _, p := range c.waiting {
		if p.ctx.Err() != nil {
			continue // its caller leaves by itself
		}
		if p.life != life {
			if p.take() {
				p.finish(0, errOtherLife)
			}
			continue
		}
		fits := len(batch) < MaxTxnDocuments && bytes+p.bytes <= MaxTxnBytes && addsAtMost(documents, p, MaxTxnDocuments)
		if !fits || touched.collide(p) {
			touched.add(p)
			rest = append(rest, p)
			continue
		}
		touched.add(p)
		if !p.take() {
			continue // its caller has just left
		}
		p.each(func(key string, _ []byte, _ bool) { documents[key] = true })
		bytes += p.bytes
		batch = append(batch, p)
	}
	c.waiting = rest
	return batch
}

// addsAtMost says whether the documents together with the change's are no more than the bound.
func addsAtMost(documents map[string]bool, p *pending, bound int) bool {
	added := map[string]bool{}
	p.each(func(key string, _ []byte, _ bool) {
		if !documents[key] {
			added[key] = true
		}
	})
	return len(documents)+len(added) <= bound
}

// touches are the keys of several changes.
type touches struct{ reads, writes map[string]bool }

func (t touches) add(p *pending) {
	p.each(func(key string, _ []byte, written bool) {
		if written {
			t.writes[key] = true
		} else {
			t.reads[key] = true
		}
	})
}

// collide says whether one's write is another's read or write. Two that only read a key do not collide.
func (t touches) collide(p *pending) (hit bool) {
	p.each(func(key string, _ []byte, written bool) {
		hit = hit || t.writes[key] || written && t.reads[key]
	})
	return hit
}

// each visits all keys of a transaction with the bytes that it sends for them.
func (t Txn) each(visit func(key string, value []byte, written bool)) {
	for _, c := range t.Compares {
		visit(c.Key, c.Value, false)
	}
	for _, p := range t.Puts {
		visit(p.Key, p.Value, true)
	}
	for _, key := range t.Deletes {
		visit(key, nil, true)
	}
}

func (c Change) each(visit func(key string, value []byte, written bool)) {
	Txn{Compares: c.Reads, Puts: c.Puts, Deletes: c.Deletes}.each(visit)
}

// transaction puts the changes and the next mark into one; what two of them read alike is compared once.
func (c *Committer) transaction(batch []*pending, next Item) Txn {
	t := Txn{Compares: []Item{c.known}, Puts: []Item{next}}
	compared := map[string]Item{}
	for _, p := range batch {
		for _, read := range p.Reads {
			if before, ok := compared[read.Key]; ok && same(before, read) {
				continue
			}
			compared[read.Key] = read
			t.Compares = append(t.Compares, read)
		}
		t.Puts = append(t.Puts, p.Puts...)
		t.Deletes = append(t.Deletes, p.Deletes...)
	}
	return t
}
