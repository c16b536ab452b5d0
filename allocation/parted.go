package allocation

import (
	"iter"
	"maps"
)

// parted is a map of which a changed copy costs what changed, not what there is: a region that knows 100,000 budgets hears of
// a new term many times a second. It is two levels of 64 parts, by a hash of the key; a change copies the few parts that it
// touches, and shares the others. The zero value is empty.
type parted[K comparable, V any] struct {
	hash  func(K) uint32
	parts *[fanOut]*[fanOut]map[K]V
	n     int
}

const fanOut = 64

func newParted[K comparable, V any](hash func(K) uint32) parted[K, V] {
	return parted[K, V]{hash: hash}
}

func (m parted[K, V]) len() int { return m.n }

func (m parted[K, V]) get(key K) (value V, ok bool) {
	if m.parts == nil {
		return value, false
	}
	h := m.hash(key)
	inner := m.parts[h%fanOut]
	if inner == nil {
		return value, false
	}
	value, ok = inner[h/fanOut%fanOut][key]
	return value, ok
}

// all visits the entries in no order.
func (m parted[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if m.parts == nil {
			return
		}
		for _, inner := range m.parts {
			if inner == nil {
				continue
			}
			for _, part := range inner {
				for k, v := range part {
					if !yield(k, v) {
						return
					}
				}
			}
		}
	}
}

// edition is a parted map while it is changed. What was copied once is not copied again.
type edition[K comparable, V any] struct {
	parted[K, V]
	own map[uint32]bool // parts; those of the upper level are above fanOut²
}

// edit begins a change; m stays as it is.
func (m parted[K, V]) edit() *edition[K, V] {
	return &edition[K, V]{parted: m, own: map[uint32]bool{}}
}

// part is the part of a key, to be changed.
func (e *edition[K, V]) part(key K) map[K]V {
	const top = 2 * fanOut * fanOut
	if !e.own[top] {
		parts := [fanOut]*[fanOut]map[K]V{}
		if e.parts != nil {
			parts = *e.parts
		}
		e.parts, e.own[top] = &parts, true
	}
	h := e.hash(key)
	upper, lower := h%fanOut, h/fanOut%fanOut
	if at := fanOut*fanOut + upper; !e.own[at] {
		inner := [fanOut]map[K]V{}
		if e.parts[upper] != nil {
			inner = *e.parts[upper]
		}
		e.parts[upper], e.own[at] = &inner, true
	}
	inner, at := e.parts[upper], upper*fanOut+lower
	if !e.own[at] {
		if inner[lower] = maps.Clone(inner[lower]); inner[lower] == nil {
			inner[lower] = map[K]V{}
		}
		e.own[at] = true
	}
	return inner[lower]
}

func (e *edition[K, V]) put(key K, value V) {
	part := e.part(key)
	before := len(part)
	part[key] = value
	e.n += len(part) - before
}

func (e *edition[K, V]) drop(key K) {
	part := e.part(key)
	before := len(part)
	delete(part, key)
	e.n += len(part) - before
}

// hashStart is where FNV-1a begins.
const hashStart = 2166136261

// hashName spreads names over the parts: FNV-1a, folded so that its low bits depend on all of it.
func hashName(name string) uint32 { return folded(hashOn(hashStart, name)) }

func hashOn(h uint32, text string) uint32 {
	for i := range len(text) {
		h = (h ^ uint32(text[i])) * 16777619
	}
	return h
}

func folded(h uint32) uint32 { return h ^ h>>12 ^ h>>24 }
