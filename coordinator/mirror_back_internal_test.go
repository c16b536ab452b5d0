package coordinator

import "testing"

// Only a read that began after the write says that the store does not have it. If one from before said so, a write that stands
// would be answered as one that could not be read back.
func TestReadFromBeforeTheWriteEndsNoWait(t *testing.T) {
	m := NewMirror(nil, nil)
	changed := m.Runtime.NewSignal()
	m.begun = 1 // it is under way
	since := m.readsBegun()
	for _, step := range []struct {
		said answered
		back bool
	}{
		{answered{1, 8}, false}, {answered{2, 9}, false}, {answered{3, 8}, true}, {answered{4, 10}, false},
	} {
		m.noteAnswer(step.said)
		if _, back, _ := m.look(9, since, changed); back != step.back {
			t.Errorf("a wait for revision 9, begun during read 1; read %d says %d: the store went back: %v", step.said.number, step.said.revision, back)
		}
	}
}
