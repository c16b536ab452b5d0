// Package webhook sends events to one receiver over HTTP, each signed with a secret that both know.
//
//	POST URL
//	Tranche-Event: 00000000004294967298-5f0c9a41
//	Tranche-Signature: t=1764525600,v1=HEX      HEX = HMAC-SHA256(secret, "1764525600." + body)
//
// The time is part of what is signed, so that a receiver can refuse what is old; the event's id tells a repetition.
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// The headers of a delivery.
const (
	EventHeader     = "Tranche-Event"
	SignatureHeader = "Tranche-Signature"
)

const (
	minSecret = 16       // bytes
	maxAnswer = 64 << 10 // bytes of an answer that are read, so that the connection can be used again
)

// Receiver is where events go.
type Receiver struct {
	url    string
	secret []byte
	client *http.Client
}

// New checks the address and the secret. Beyond this machine only https is taken: a body names tenants and what they spend.
func New(address string, secret []byte) (*Receiver, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("the webhook's address is not a URL; give one like https://hooks.example.com/tranche")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return nil, fmt.Errorf("the webhook at %s is not on this machine: use https", u.Host)
	case u.User != nil:
		return nil, errors.New("the webhook's address has a password in it; leave it out: the signature proves who sends")
	case len(secret) < minSecret:
		return nil, fmt.Errorf("the webhook's secret has %d bytes; use at least %d", len(secret), minSecret)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &Receiver{url: u.String(), secret: secret, client: client}, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Send posts one event. Any status of 200 to 299 says that it was taken; a redirect is not followed.
func (r *Receiver) Send(ctx context.Context, id string, at time.Time, body []byte) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make the request: %w", err)
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set(EventHeader, id)
	q.Header.Set(SignatureHeader, Sign(r.secret, at, body))
	answer, err := r.client.Do(q)
	if err != nil {
		// The error names the address, which may hold a secret path.
		if wrapped, is := errors.AsType[*url.Error](err); is {
			err = wrapped.Err
		}
		return fmt.Errorf("post to the webhook: %w", err)
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, maxAnswer))
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		return fmt.Errorf("the webhook answers %d", answer.StatusCode)
	}
	return nil
}

// Sign is the value of SignatureHeader.
func Sign(secret []byte, at time.Time, body []byte) string {
	t := strconv.FormatInt(at.Unix(), 10)
	return "t=" + t + ",v1=" + hex.EncodeToString(digest(secret, t, body))
}

func digest(secret []byte, t string, body []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(t + "."))
	h.Write(body)
	return h.Sum(nil)
}

// Verify is what a receiver does: it says why a delivery must not be believed. Deliveries that were signed longer ago than
// tolerance, or that much ahead, are refused.
func Verify(secret []byte, signature string, body []byte, now time.Time, tolerance time.Duration) error {
	stamp, sum, _ := strings.Cut(signature, ",")
	t, hasTime := strings.CutPrefix(stamp, "t=")
	text, hasSum := strings.CutPrefix(sum, "v1=")
	seconds, err := strconv.ParseInt(t, 10, 64)
	want, bad := hex.DecodeString(text)
	switch {
	case !hasTime || !hasSum || err != nil || bad != nil:
		return errors.New("the signature is not of the form t=SECONDS,v1=HEX")
	case !hmac.Equal(want, digest(secret, t, body)):
		return errors.New("the signature does not fit the body and the secret")
	case now.Sub(time.Unix(seconds, 0)).Abs() > tolerance:
		return errors.New("it was signed too long ago, or by a clock that is ahead")
	}
	return nil
}
