package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/allocation"
)

// copied are rows that a transaction writes by COPY before all else.
type copied struct {
	text string
	rows []byte
}

// write sends the rows and awaits the answer: after an error nothing of the transaction will be committed.
func (c *copied) write(ctx context.Context, conn *pgxpool.Conn) error {
	if c == nil {
		return nil
	}
	if _, err := conn.Conn().PgConn().CopyFrom(ctx, bytes.NewReader(c.rows), c.text); err != nil {
		return fmt.Errorf("copy rows: %w", err)
	}
	return nil
}

// A COPY in binary is a header, then each row as the number of its fields and each field behind its length, then a trailer.
const (
	copyHeader  = "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	copyTrailer = "\xff\xff"
	idColumns   = 14
	idBytes     = 640 // of a usual row
)

// copyRows are the rows of ids as copyIDs takes them, in the order of the list.
func copyRows(list []*allocation.Admission) ([]byte, error) {
	w := copyWriter{out: append(make([]byte, 0, len(copyHeader)+len(list)*idBytes), copyHeader...)}
	var alike []byte // of the row before: the columns between the id and the document
	var err error
	for i, a := range list {
		w.out = binary.BigEndian.AppendUint16(w.out, idColumns)
		w.text(a.Credential)
		w.text(a.Tenant)
		w.text(a.ID)
		start := len(w.out)
		if i > 0 && alikeButID(a, list[i-1]) && sameLines(a.Lines, list[i-1].Lines) {
			w.out = append(w.out, alike...)
		} else {
			w.middle(a)
		}
		alike = w.out[start:len(w.out):len(w.out)]
		rest := w.begin()
		if w.out, err = appendRest(w.out, a); err != nil {
			return nil, err
		}
		w.end(rest)
	}
	return append(w.out, copyTrailer...), nil
}

// copyWriter appends fields.
type copyWriter struct{ out []byte }

// middle is what stands between the id and the document.
func (w *copyWriter) middle(a *allocation.Admission) {
	w.text(a.Payload)
	w.text(string(a.Op))
	w.text(string(a.State))
	w.number(a.At)
	w.number(a.ExpiresAt)
	w.number(a.Latest)
	lines := a.Lines
	w.array(pgtype.TextOID, len(lines), func(i int) { w.text(lines[i].Budget) })
	w.array(pgtype.TextOID, len(lines), func(i int) { w.text(lines[i].Instance) })
	w.array(pgtype.Int8OID, len(lines), func(i int) { w.number(int64(lines[i].Period)) })
	w.array(pgtype.TextOID, len(lines), func(i int) { w.text(string(lines[i].Class)) })
}

// begin leaves room for a length, and end fills it in.
func (w *copyWriter) begin() (at int) {
	w.out = append(w.out, 0, 0, 0, 0)
	return len(w.out)
}

func (w *copyWriter) end(at int) {
	binary.BigEndian.PutUint32(w.out[at-4:], uint32(len(w.out)-at))
}

func (w *copyWriter) text(s string) {
	w.out = append(binary.BigEndian.AppendUint32(w.out, uint32(len(s))), s...)
}

func (w *copyWriter) number(n int64) {
	w.out = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(w.out, 8), uint64(n))
}

// array appends an array of one dimension, numbered from 1; an empty one has none.
func (w *copyWriter) array(element uint32, n int, each func(i int)) {
	at := w.begin()
	dimensions := min(n, 1)
	w.out = binary.BigEndian.AppendUint32(w.out, uint32(dimensions))
	w.out = binary.BigEndian.AppendUint32(w.out, 0) // no element is null
	w.out = binary.BigEndian.AppendUint32(w.out, element)
	if n > 0 {
		w.out = binary.BigEndian.AppendUint32(w.out, uint32(n))
		w.out = binary.BigEndian.AppendUint32(w.out, 1)
	}
	for i := range n {
		each(i)
	}
	w.end(at)
}
