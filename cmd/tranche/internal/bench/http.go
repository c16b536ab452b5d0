package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"tranche/regional"
)

// An HTTP client that does next to nothing: a benchmark whose client costs more than its server measures the client. It
// speaks HTTP/1.1 over one connection that is kept, to our own servers, which tell the length of each answer.

const maxAnswer = 1 << 20

// connection is one such client.
type connection struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte
	body []byte
}

func dial(address string) (*connection, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return &connection{conn: conn, in: bufio.NewReaderSize(conn, 16<<10)}, nil
}

// post sends one request and reads its answer, which is valid until the next one.
func (c *connection) post(path, headers string, body []byte, within time.Duration) (status int, answer []byte, err error) {
	c.out = append(c.out[:0], "POST "...)
	c.out = append(c.out, path...)
	c.out = append(c.out, " HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"...)
	c.out = append(c.out, headers...)
	c.out = append(c.out, "Content-Length: "...)
	c.out = strconv.AppendInt(c.out, int64(len(body)), 10)
	c.out = append(c.out, "\r\n\r\n"...)
	c.out = append(c.out, body...)
	if err := c.conn.SetDeadline(time.Now().Add(within)); err != nil {
		return 0, nil, err
	}
	if _, err := c.conn.Write(c.out); err != nil {
		return 0, nil, err
	}
	return c.read()
}

var lengthHeader = []byte("Content-Length: ")

func (c *connection) read() (status int, body []byte, err error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return 0, nil, err
	}
	if len(line) < 12 {
		return 0, nil, fmt.Errorf("this is no answer: %q", line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, nil, err
	}
	length := 0
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return 0, nil, err
		}
		if len(line) <= 2 {
			break
		}
		if text, ok := bytes.CutPrefix(line, lengthHeader); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(text))); err != nil {
				return 0, nil, err
			}
		}
	}
	if length > maxAnswer {
		return 0, nil, errors.New("an answer is too long")
	}
	if cap(c.body) < length {
		c.body = make([]byte, length)
	}
	c.body = c.body[:length]
	_, err = io.ReadFull(c.in, c.body)
	return status, c.body, err
}

func (c *connection) close() { _ = c.conn.Close() }

// server serves a handler on this machine, as a node serves its API.
type server struct {
	http     *http.Server
	listener net.Listener
}

func serve(h http.Handler) (*server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	s := &server{regional.NewServer(h), listener}
	go func() { _ = s.http.Serve(listener) }() // ends with Close
	return s, nil
}

func (s *server) address() string { return s.listener.Addr().String() }
func (s *server) close()          { _ = s.http.Close() }

// noOp is a handler that reads a request and decides nothing; its answer is as long as that of an admission.
func noOp(answer []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		_, _ = w.Write(answer)
	})
}

// overHTTP is a client over a connection of its own; a broken connection is made anew.
func overHTTP(address, path, headers string, body func(id string) []byte, within time.Duration, told func(status int, answer []byte) outcome) client {
	var c *connection
	return func(ctx context.Context, id string) outcome {
		if ctx.Err() != nil {
			if c != nil {
				c.close()
			}
			return failed
		}
		if c == nil {
			var err error
			if c, err = dial(address); err != nil {
				return failed
			}
		}
		status, answer, err := c.post(path, headers+"Admission-Id: "+id+"\r\n", body(id), within)
		if err != nil {
			c.close()
			c = nil
			return failed
		}
		return told(status, answer)
	}
}

var (
	replayedMark = []byte(`"replayed":true`)
	unknownMark  = []byte(`"outcome":"unknown"`)
)

// oneAnswer is what the answer to a single request tells.
func oneAnswer(status int, answer []byte) outcome {
	switch {
	case status == http.StatusOK && bytes.Contains(answer, replayedMark):
		return replayed
	case status == http.StatusOK:
		return admitted
	case status == http.StatusServiceUnavailable && bytes.Contains(answer, unknownMark):
		return unknown
	case status == http.StatusServiceUnavailable:
		return unavailable
	}
	return refused
}
