package regional_test

import (
	"errors"
	"testing"

	"tranche/allocation"
	"tranche/regional"
)

// A replica of a stopped owner that is promoted has the stop, and another home. It neither resumes nor is handed over until
// the coordinator has recorded it: the old primary could be resumed as well. From then on it does what the old one could.
func TestStoppedOwnerIsPromoted(t *testing.T) {
	old := allocation.Home{System: "s", Database: 1, Timeline: 1}
	promoted, to := old, allocation.Home{System: "new", Database: 1, Timeline: 1}
	promoted.Timeline++
	stopped := regional.Handover{ID: "h", From: old}
	for _, step := range []regional.HandoverStep{regional.HandoverStop, regional.HandoverHand, regional.HandoverResume} {
		if h, err := stopped.Next(step, regional.Handover{ID: "h", To: to}, old, promoted); !errors.Is(err, allocation.ErrContradicted) || h != stopped {
			t.Errorf("step %d before it is recorded: %+v, %v", step, h, err)
		}
	}
	if h, err := stopped.Next(regional.HandoverResume, stopped, promoted, promoted); err != nil || h != (regional.Handover{}) {
		t.Errorf("it does not go on: %+v, %v", h, err)
	}
	handed, err := stopped.Next(regional.HandoverHand, regional.Handover{ID: "h", To: to}, promoted, promoted)
	if err != nil || handed != (regional.Handover{ID: "h", From: promoted, To: to}) {
		t.Errorf("it is not handed over: %+v, %v", handed, err)
	}
	if h, err := handed.Next(regional.HandoverResume, handed, promoted, promoted); !errors.Is(err, regional.ErrHandedOver) {
		t.Errorf("it goes on although it was handed over: %+v, %v", h, err)
	}
}
