package bench

import (
	"encoding/hex"
	"math/rand/v2"
	"time"
)

// ids makes admission ids for one client, as callers should make them: UUIDs of version 7, of which those that are made
// together lie together in an index. Random ones are of version 4.
type ids struct {
	random *rand.Rand
	byTime bool
}

func newIDs(byTime bool) *ids {
	return &ids{random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), byTime: byTime}
}

func (i *ids) next() string {
	var b [16]byte
	high, low := i.random.Uint64(), i.random.Uint64()
	if i.byTime {
		high = uint64(time.Now().UnixMilli())<<16 | high>>48
	}
	for n := range 8 {
		b[n], b[8+n] = byte(high>>(56-8*n)), byte(low>>(56-8*n))
	}
	version := byte(0x40)
	if i.byTime {
		version = 0x70
	}
	b[6], b[8] = b[6]&0x0f|version, b[8]&0x3f|0x80
	var text [36]byte
	hex.Encode(text[0:8], b[0:4])
	hex.Encode(text[9:13], b[4:6])
	hex.Encode(text[14:18], b[6:8])
	hex.Encode(text[19:23], b[8:10])
	hex.Encode(text[24:36], b[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text[:])
}
