package pdpool

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
)

// secretBytes is the length of each of the two secrets.
const secretBytes = 32

// EntropyBytes is how many random bytes a look brings along.
const EntropyBytes = 2 * secretBytes

// hungInterval is how often a pool looks again at pods that hang before their start.
const hungInterval = 30 * time.Second

// keySecret holds the pool's secrets. It is created with pods and never written
// again, and the operator may not read it: one that exists is taken as it is.
func keySecret(pool *v1alpha1.PDPool, entropy [EntropyBytes]byte) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: childMeta(pool, keyName(pool.Name), childLabels(pool, "")),
		Type:       corev1.SecretTypeOpaque,
		Data: map[string][]byte{
			agentconfig.KeyFile:   entropy[:secretBytes:secretBytes],
			agentconfig.TokenFile: []byte(hex.EncodeToString(entropy[secretBytes:])),
		},
	}
}

// drainToken is what the preStop hook of a pod shows to the pod's agent. It stands
// in the pod, for those to see who may read pods. To others it is not known, as a
// pool's UID is not.
func drainToken(pool *v1alpha1.PDPool, pod string) string {
	return hexSum(fmt.Sprintf("pdpool drain %s %s", pool.UID, pod))
}

func hexSum(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// keyVolume mounts the whole Secret, so that items which people add, such as an
// earlier key, are seen too. A pod without the Secret does not start.
func keyVolume(pool *v1alpha1.PDPool) corev1.Volume {
	return corev1.Volume{Name: volumeKey, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: keyName(pool.Name), DefaultMode: new(int32(0o440)),
	}}}
}

// provideKey creates the pool's Secret with any engine pod, and again for pods that
// hang before their start: somebody may have deleted it.
func (p *planner) provideKey() {
	needed := false
	for _, o := range p.plan.Create {
		_, pod := o.(*corev1.Pod)
		needed = needed || pod
	}
	for _, s := range p.roles() {
		for _, g := range s.groups {
			needed = needed || g.alive() && p.hangs(g)
		}
	}
	if needed {
		p.create(keySecret(p.pool, p.seen.Entropy))
	}
}

// hangs says whether a pod of the group has a node and no sandbox yet: a volume of
// it may lack. A pod that starts passes through this state in a second or two.
func (p *planner) hangs(g *group) bool {
	hung := false
	for _, pod := range g.pods {
		hung = hung || pod.Spec.NodeName != "" && pod.Status.Phase == corev1.PodPending && !prepared(pod)
	}
	if hung {
		p.again(hungInterval)
	}
	return hung
}

// prepared says that the kubelet has what the containers of a pod need to start.
func prepared(pod *corev1.Pod) bool { return podIs(pod, corev1.PodReadyToStartContainers) }
