package pdpool

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
)

// recordRouter keeps the router's revision, as record does for the engines.
func (p *planner) recordRouter() {
	if !p.resolved.Router.Builtin {
		p.dropRouterRevisions("")
		return
	}
	hash := p.resolved.routerRevision(p.pool.Spec.Router)
	for i := range p.seen.ControllerRevisions {
		c := &p.seen.ControllerRevisions[i]
		var rec routerRecord
		if c.Labels[v1alpha1.LabelRole] == v1alpha1.RoleRouter && c.Labels[v1alpha1.LabelRevision] == hash &&
			json.Unmarshal(c.Data.Raw, &rec) == nil && rec.Version == recordVersion {
			p.router = &rec
			p.dropRouterRevisions(hash)
			return
		}
	}
	p.create(controllerRevision(p.pool, v1alpha1.RoleRouter, hash, "", p.number, p.resolved.newRouterRecord(p.pool)))
	p.note(Progressing, v1alpha1.ReasonCreating, fmt.Sprintf("revision %s of the router is recorded", hash))
}

// registers says whether engines are there that register with the router. After a change
// of the mover those of before serve on, and the router hears them until they have gone.
func (p *planner) registers() bool {
	for _, s := range p.roles() {
		for i := range s.all {
			if v := &s.all[i]; v.record.Agent.Mover == kvlayout.MoverEngine && p.hasPods(s, v.hash) {
				return true
			}
		}
	}
	return p.resolved.Mover == kvlayout.MoverEngine
}

// dropRouterRevisions deletes the router's revisions but one. The Deployment has a
// history of its own.
func (p *planner) dropRouterRevisions(keep string) {
	for i := range p.seen.ControllerRevisions {
		c := &p.seen.ControllerRevisions[i]
		if c.Labels[v1alpha1.LabelRole] == v1alpha1.RoleRouter && c.Labels[v1alpha1.LabelRevision] != keep && c.DeletionTimestamp == nil {
			p.plan.Delete = append(p.plan.Delete, c)
		}
	}
}

// applyChildren brings everything but pods in line, and removes what is not wanted
// any more.
func (p *planner) applyChildren() {
	there, wanted := map[string]Object{}, map[string]bool{}
	children := p.children()
	for _, o := range children {
		there[childKey(o)] = o
	}
	for _, o := range p.wantedChildren() {
		sign(o)
		key := childKey(o)
		wanted[key] = true
		switch live := there[key]; {
		case live == nil:
			p.plan.Apply = append(p.plan.Apply, o)
			p.note(Progressing, v1alpha1.ReasonCreating, key+" is created")
		case live.GetDeletionTimestamp() != nil:
			p.note(Waiting, v1alpha1.ReasonRemoving, key+" is being deleted and made anew then")
		case !asApplied(live, o):
			o.SetUID(live.GetUID())
			p.plan.Apply = append(p.plan.Apply, o)
			p.note(Progressing, v1alpha1.ReasonApplying, key+" is brought in line with what is wanted")
		}
	}
	for _, o := range children {
		_, router := o.(*appsv1.Deployment)
		waits := router && p.resolved.Router.Builtin // for its revision
		if !wanted[childKey(o)] && !waits && o.GetDeletionTimestamp() == nil {
			p.plan.Delete = append(p.plan.Delete, o)
			p.note(Progressing, v1alpha1.ReasonRemoving, childKey(o)+" is removed")
		}
	}
}

// wantedChildren leaves out the router's Deployment until its revision is recorded.
func (p *planner) wantedChildren() []Object {
	if p.router == nil {
		return p.resolved.applied(p.pool)
	}
	return append(p.resolved.applied(p.pool), p.resolved.deployment(p.pool, *p.router))
}

// children are all observed children that are applied, in an order of their own: the
// cache has none, and what a status says must not change from look to look.
func (p *planner) children() []Object {
	var out []Object
	for i := range p.seen.Services {
		out = append(out, &p.seen.Services[i])
	}
	for i := range p.seen.ServiceAccounts {
		out = append(out, &p.seen.ServiceAccounts[i])
	}
	for i := range p.seen.RoleBindings {
		out = append(out, &p.seen.RoleBindings[i])
	}
	for i := range p.seen.NetworkPolicies {
		out = append(out, &p.seen.NetworkPolicies[i])
	}
	for i := range p.seen.Deployments {
		out = append(out, &p.seen.Deployments[i])
	}
	slices.SortFunc(out, func(a, b Object) int { return cmp.Compare(childKey(a), childKey(b)) })
	return out
}

// childKey names a child, such as "Service r1-router". The kind is its Go type's, since
// objects that a typed client read say none.
func childKey(o Object) string { return reflect.TypeOf(o).Elem().Name() + " " + o.GetName() }

// routerReady is the number of router pods that exist and that are ready, of any revision.
func (p *planner) routerReady() (exist, isReady int) {
	if d := p.routerDeployment(); d != nil {
		return int(d.Status.Replicas), int(d.Status.ReadyReplicas)
	}
	return 0, 0
}

// routerDeployment is the router's as seen, or nil.
func (p *planner) routerDeployment() *appsv1.Deployment {
	for i := range p.seen.Deployments {
		if d := &p.seen.Deployments[i]; d.Name == routerName(p.pool.Name) {
			return d
		}
	}
	return nil
}
