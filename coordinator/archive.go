package coordinator

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Archive keeps closing records for good, outside of etcd.
type Archive interface {
	// Append adds lines, in order, and returns once they are durable. A line may come twice: a replica may end after it
	// was appended and before it was removed from etcd, and another may append it again. Whoever reads takes the last one.
	Append(ctx context.Context, lines [][]byte) error
}

// ArchiveLine is one line of an archive: a record, or what was stated after it was archived.
type ArchiveLine struct {
	Format    int        `json:"format"`
	Closing   *Closing   `json:"closing,omitempty"`
	Amendment *Amendment `json:"amendment,omitempty"`
}

// archivedAtOnce is how many records are appended before they are removed.
const archivedAtOnce = 500

// archiveClosings moves records out of etcd that were there for long enough, and all amendments. Nothing is removed before
// the archive has it, durably; a record that changed meanwhile stays, and is appended once more. Without an archive they
// end with their time.
func (s *Service) archiveClosings(ctx context.Context) error {
	due := s.dueForArchive()
	for part := range slices.Chunk(due, archivedAtOnce) {
		var lines [][]byte
		items := make([]Item, 0, len(part))
		for _, d := range part {
			items = append(items, d.item)
			line, err := json.Marshal(d.line)
			if err != nil {
				return fmt.Errorf("encode %s for the archive: %w", d.item.Key, err)
			}
			lines = append(lines, line)
		}
		if s.config.Archive != nil {
			err := s.config.Archive.Append(ctx, lines)
			s.noteArchive(err)
			if err != nil {
				return fmt.Errorf("archive closing records: %w", err)
			}
		}
		removed, err := s.removeAll(ctx, items)
		if s.config.Archive != nil {
			s.metrics.archived.Add(float64(removed))
		} else {
			s.metrics.dropped.Add(float64(removed))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

type archivable struct {
	item Item
	at   time.Time
	line ArchiveLine
}

// dueForArchive are the records that go now, oldest first: those whose time is over, and, if there is an archive, as many
// more as it takes to bring all of them below their bound.
func (s *Service) dueForArchive() []archivable {
	before := s.now().Add(-s.config.ClosingRetention)
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	var all []archivable
	for _, c := range s.state.closings {
		all = append(all, archivable{item: c.item, at: c.value.Closed, line: ArchiveLine{Format: documentFormat, Closing: &c.value}})
	}
	slices.SortFunc(all, func(a, b archivable) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.item.Key, b.item.Key)) })
	bytes, n := s.state.closingBytes, 0
	for n < len(all) && n < maxPerTick && (all[n].at.Before(before) || s.config.Archive != nil && bytes > maxClosingsBytes/2) {
		bytes -= len(all[n].item.Value)
		n++
	}
	due := all[:n:n]
	var amendments []archivable
	for _, a := range s.state.amendments {
		if s.config.Archive != nil || a.value.Late.At.Before(before) {
			amendments = append(amendments, archivable{item: a.item, line: ArchiveLine{Format: documentFormat, Amendment: &a.value}})
		}
	}
	slices.SortFunc(amendments, func(a, b archivable) int { return cmp.Compare(a.item.Key, b.item.Key) })
	return append(due, amendments[:min(maxPerTick, len(amendments))]...)
}

// noteArchive remembers whether the archive takes what it is given, for the status.
func (s *Service) noteArchive(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.archiveWord = ""; err != nil {
		s.archiveWord = err.Error()
	}
}

// archiveProblems says what keeps records from being kept.
func (s *Service) archiveProblems(add addStatus) {
	s.mu.Lock()
	word := s.archiveWord
	s.mu.Unlock()
	if word != "" {
		add(SeverityWarning, "look at the folder of --closing-archive: its space and its rights", "closing records cannot be archived, and stay in etcd: %s", word)
	}
	s.state.mu.Lock()
	bytes := s.state.closingBytes
	s.state.mu.Unlock()
	if bytes > maxClosingsBytes {
		add(SeverityWarning, "give the coordinators a --closing-archive, or a shorter --closing-retention",
			"closing records take %d MiB in etcd: new ones are kept without their periods", bytes>>20)
	}
}

// enterClosing takes one record into the picture.
func (s *state) enterClosing(e Event) error {
	if before := s.closings[e.Key]; before != nil {
		s.closingBytes -= len(before.item.Value)
		delete(s.closings, e.Key)
	}
	return enter(e, func(d *doc[Closing]) {
		s.closings[e.Key] = d
		s.closingBytes += len(d.item.Value)
	})
}
