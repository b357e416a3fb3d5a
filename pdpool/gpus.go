package pdpool

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// gpuPause is how long what the status tells of devices stays as it is at least, so
// that a node whose devices come and go does not make a write each time.
const gpuPause = 2 * time.Minute

// gpuLook is how often a pool that lacks devices looks again: those that pods of
// other pools give back come by no watch.
const gpuLook = time.Minute

// gpuVerdict is what the status tells of devices.
type gpuVerdict struct {
	fit     bool
	message string
	status  v1alpha1.GPUStatus
}

func (v gpuVerdict) reason() string {
	if v.fit {
		return v1alpha1.ReasonDevicesFit
	}
	return v1alpha1.ReasonDevicesLack
}

// countDevices finds out whether the nodes have devices for the pool. It decides on
// no pod: the scheduler has the last word, and knows of pods of others.
func (p *planner) countDevices() {
	fit := p.seen.Devices.Fit(p.pool)
	now := gpuVerdict{fit: fit.All(), message: clip(fit.String(), maxNote)}
	now.status.ChangeTime = notAfter(p.pool.Status.GPUs.ChangeTime, p.seen.Now)
	if left := p.seen.Devices.settles(); left > 0 {
		p.again(left)
	}
	old := meta.FindStatusCondition(p.pool.Status.Conditions, v1alpha1.ConditionGPUsAvailable)
	was := gpuVerdict{status: now.status}
	if old != nil {
		was.fit, was.message = old.Status == metav1.ConditionTrue, old.Message
	}
	switch changed := was.fit != now.fit || was.message != now.message; {
	case old == nil || now.status.ChangeTime == nil || changed && old.ObservedGeneration != p.pool.Generation:
		now.status.ChangeTime = stamp(p.seen.Now)
	case !changed:
	default:
		if left := now.status.ChangeTime.Add(gpuPause).Sub(p.seen.Now); left > 0 {
			p.again(left)
			p.gpus = was
			return
		}
		now.status.ChangeTime = stamp(p.seen.Now)
	}
	if p.gpus = now; !now.fit {
		p.again(gpuLook)
	}
}
