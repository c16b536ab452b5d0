package coordinator

import (
	"context"
	"fmt"
	"time"
)

// A webhook is told each event of the feed, in order, at least once. Its cursor stands in etcd, so another replica goes on
// where one ended; of several that send at once only one moves it, and the receiver knows a repetition by the event's id.
//
//	the feed, behind the cursor ──▶ Sender ──taken──▶ the cursor in etcd ──▶ the next
//	                                  └──refused, or no answer──▶ wait, longer each time; after a day the event is given up
//
// It runs beside everything else, and nothing waits for it.
const webhookKey = Root + "webhook"

// Bounds of sending.
const (
	webhookEvery   = time.Second      // between two looks for new events
	webhookTimeout = 10 * time.Second // of one attempt
	webhookFirst   = time.Second      // the first wait after a failure; it doubles
	webhookLongest = 5 * time.Minute
	webhookGiveUp  = 24 * time.Hour // an event that is older is not tried again after a failure
)

// Sender delivers one event to the receiver. It returns nil only if the receiver took it.
type Sender interface {
	Send(ctx context.Context, id string, at time.Time, body []byte) error
}

// WebhookDocument is how far the webhook is.
type WebhookDocument struct {
	Format int    `json:"format"`
	Cursor string `json:"cursor"` // the latest event that was taken, or given up
}

// The results of an attempt.
const (
	webhookDelivered = "delivered"
	webhookFailed    = "failed"
	webhookGivenUp   = "given_up"
)

// sendEvents sends while this replica leads the webhook.
func (s *Service) sendEvents(ctx context.Context) error {
	wait := webhookFirst
	for ctx.Err() == nil {
		sent, err := s.sendNext(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			s.log.Warn("event is not delivered", "error", err, "again_in", wait.String())
			s.runtime.Sleep(ctx, wait)
			wait = min(2*wait, webhookLongest)
		case !sent:
			s.runtime.Sleep(ctx, webhookEvery)
		default:
			wait = webhookFirst
		}
	}
	return nil
}

// sendNext sends the next event, if there is one.
func (s *Service) sendNext(ctx context.Context) (sent bool, err error) {
	if !s.isTrusted() {
		return false, nil
	}
	s.state.mu.Lock()
	hook := s.state.feed.hook
	next, due := s.state.feed.unsent()
	s.state.mu.Unlock()
	switch {
	case hook == nil:
		// What was told before there was a receiver is not for it.
		return false, s.moveHook(ctx, hook, "")
	case !due:
		return false, nil
	}
	now := s.now()
	attempt, cancel := s.runtime.WithTimeout(ctx, webhookTimeout)
	err = s.config.Webhook.Send(attempt, next.ID, now, encode(next))
	cancel()
	result := webhookDelivered
	if err != nil {
		s.metrics.webhook.WithLabelValues(webhookFailed).Inc()
		if now.Sub(next.At) < webhookGiveUp {
			return false, fmt.Errorf("send event %s: %w", next.ID, err)
		}
		s.log.Error("event is given up: the webhook did not take it for a day", "event", next.ID, "error", err)
		result = webhookGivenUp
	}
	if err := s.moveHook(ctx, hook, next.ID); err != nil {
		return false, err
	}
	s.metrics.webhook.WithLabelValues(result).Inc()
	return true, nil
}

// moveHook writes the cursor, if nobody else moved it since; without one, behind the latest event.
func (s *Service) moveHook(ctx context.Context, from *doc[WebhookDocument], to string) error {
	return s.act(ctx, func() (Change, error) {
		f := &s.state.feed
		if f.hook != from {
			return Change{}, nil // another replica sends, too
		}
		if to == "" && f.head != nil {
			to = f.head.value.ID
		}
		return Change{Reads: []Item{from.known(webhookKey)}, Puts: []Item{put(webhookKey, WebhookDocument{Format: documentFormat, Cursor: to})}}, nil
	})
}

// unsent is the next event behind the webhook's cursor.
func (f *feed) unsent() (next FeedEvent, due bool) {
	if f.hook == nil {
		return FeedEvent{}, false
	}
	from, cursor := 0, f.hook.value.Cursor
	if number, known := parseEventID(cursor); known {
		from, _ = f.behind(cursor, number)
	}
	if from >= len(f.events) {
		return FeedEvent{}, false
	}
	return f.events[from], true
}

// webhookLag is the age of the oldest event that was not taken yet.
func (s *Service) webhookLag() float64 {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	next, due := s.state.feed.unsent()
	if !due || s.config.Webhook == nil {
		return 0
	}
	return max(0, s.now().Sub(next.At)).Seconds()
}
