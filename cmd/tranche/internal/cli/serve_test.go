package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
)

// door is a listener on loopback that tells each time that its server waits for the next connection: the ones before it
// are then the server's.
type door struct {
	net.Listener
	waits chan struct{}
}

func openDoor(t *testing.T) *door {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return &door{l, make(chan struct{}, 16)}
}

func (d *door) Accept() (net.Conn, error) {
	d.waits <- struct{}{}
	return d.Listener.Accept()
}

// silent opens a connection and says nothing on it; it returns when the server has it.
func (d *door) silent(t *testing.T) net.Conn {
	t.Helper()
	<-d.waits
	c, err := net.Dial("tcp", d.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	<-d.waits
	d.waits <- struct{}{} // for the next that wants to know
	return c
}

// A caller's pool and a load balancer open connections on which nothing is asked. If the end waited for them, a node that
// is asked to end would need all the time that is meant for calls under way, and would then be killed by those who wait.
func TestSilentConnectionsDoNotKeepAServiceFromEnding(t *testing.T) {
	api, envoy := openDoor(t), openDoor(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-leave
		_, _ = io.WriteString(w, "whole")
	})}
	beside := alongside(grpc.NewServer(), envoy)
	stop, besideLate := beside.stop, error(nil)
	beside.stop = func(grace context.Context) {
		stop(grace)
		besideLate = grace.Err()
	}
	run := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	var said bytes.Buffer
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, server, api, run, hclog.New(&hclog.LoggerOptions{Output: &said}), beside) }()
	silent := []net.Conn{api.silent(t), api.silent(t), envoy.silent(t)}
	answered := make(chan error, 1)
	go func() {
		r, err := http.Get("http://" + api.Addr().String())
		if err == nil {
			var text []byte
			text, err = io.ReadAll(r.Body)
			if _ = r.Body.Close(); err == nil && string(text) != "whole" {
				err = errors.New("the answer is cut")
			}
		}
		answered <- err
	}()
	<-entered
	end()
	for _, c := range silent {
		_, _ = io.Copy(io.Discard, c) // until it is closed; gRPC greets first
	}
	close(leave) // the call that was under way all the while
	if err := <-answered; err != nil {
		t.Errorf("a call under way was not answered: %v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if strings.Contains(said.String(), "still under way") {
		t.Error(said.String())
	}
	if besideLate != nil {
		t.Error("the second API needed all its time to end")
	}
}

// A service that waits for a database which does not answer is given up: whoever manages the process knows how long it takes.
func TestAServiceThatDoesNotEndIsGivenUp(t *testing.T) {
	if err := ended(make(chan error), time.Millisecond); err == nil || !strings.Contains(err.Error(), "did not end within 1ms") {
		t.Errorf("got %v", err)
	}
	over := make(chan error, 1)
	over <- context.Canceled
	if err := ended(over, time.Hour); err != nil {
		t.Errorf("an end in order came out as %v", err)
	}
}
