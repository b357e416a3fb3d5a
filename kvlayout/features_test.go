package kvlayout

import "testing"

func TestParseRelease(t *testing.T) {
	for _, c := range []struct {
		text    string
		release [4]int
		pre, ok bool
	}{
		{"0.33.0", [4]int{0, 33, 0}, false, true},
		{"v0.33.0", [4]int{0, 33, 0}, false, true},
		{" V0.33.0 ", [4]int{0, 33, 0}, false, true},
		{"0.29", [4]int{0, 29}, false, true},
		{"0.5.2.1", [4]int{0, 5, 2, 1}, false, true},
		{"0.33.0rc1", [4]int{0, 33, 0}, true, true},
		{"0.33.0-rc1", [4]int{0, 33, 0}, true, true},
		{"0.33.0a2", [4]int{0, 33, 0}, true, true},
		{"0.33.1.dev5+g4ba787ec9", [4]int{0, 33, 1}, true, true},
		{"0.22.1rc1.dev490", [4]int{0, 22, 1}, true, true},
		{"0.33.0-nightly", [4]int{0, 33, 0}, true, true},
		{"0.33.0+rocm72", [4]int{0, 33, 0}, false, true},
		{"0.33.0-rocm7.2", [4]int{0, 33, 0}, false, true},
		{"0.33.0-amd", [4]int{0, 33, 0}, false, true},
		{"0.33.0-b200", [4]int{0, 33, 0}, false, true},
		{"0.33.0.post1", [4]int{0, 33, 0}, false, true},
		{text: ""},
		{text: "latest"},
		{text: "nightly"},
		{text: "20261101"},
		{text: "0.33.0wrong", release: [4]int{0, 33, 0}},
		{text: "99999999999999999999.1"},
		{text: ".33"},
	} {
		v, ok := ParseRelease(c.text)
		if ok != c.ok || v.Numbers != c.release || v.Pre != c.pre {
			t.Errorf("%q is %+v, %v; want %v, pre %v, %v", c.text, v, ok, c.release, c.pre, c.ok)
		}
	}
}

func TestSupports(t *testing.T) {
	for _, c := range []struct {
		version string
		feature Feature
		want    Support
	}{
		{"0.29.0", featureWriteTP, Lacks},
		{"0.32.1", featureWriteTP, Unknown}, // nobody looked,
		{"0.33.0rc1", featureWriteTP, Unknown},
		{"v0.33.0", featureWriteTP, Has},
		{"0.33", featureWriteTP, Has},
		{"1.0.0", featureWriteTP, Has},
		{"", featureWriteTP, Unknown},
		{"0.29", featureDCPRelayout, Lacks},
		{"0.33.0", featureDCPRelayout, Lacks},
		{"0.33.0+rocm72", featureDCPRelayout, Lacks},
		{"0.33.1", featureDCPRelayout, Unknown},
		{"0.34.0.dev1", featureDCPRelayout, Unknown},
		{"latest", featureDCPRelayout, Unknown},
		{"0.33.0", "no such feature", Unknown},
		{"0.32.0", featureXGMIWait, Has},
		{"0.33.0", featureXGMIWait, Lacks},
		{"0.34.0", featureXGMIWait, Unknown},
		{"0.32.0", featureWriteWindows, Unknown},
		{"0.33.0", featureWriteWindows, Lacks},
		{"0.5.21", featureSGLangDCP, Lacks},
		{"0.5.22", featureSGLangDCP, Has},
		{"0.5.13.post1", featureSGLangDCP, Lacks},
		{"0.22.0", FeatureReadModeEnv, Has},
		{"0.23.0", FeatureReadModeEnv, Lacks},
		{"0.33.0", FeatureReadModeEnv, Lacks},
		{"", FeatureReadModeEnv, Unknown},
		{"v0.5.22", FeatureAttentionDPSize, Has},
		{"0.5.22rc1", FeatureAttentionDPSize, Unknown},
		{"0.5.22+rocm72", FeatureAttentionDPSize, Has},
		{"0.5.21.1", FeatureAttentionDPSize, Unknown}, // nobody looked
		{"0.5.21", FeatureAttentionDPSize, Lacks},
		{"0.5.21.post1", FeatureDecodeCacheDCP, Has},
	} {
		if got := Supports(c.version, c.feature); got != c.want {
			t.Errorf("vLLM %q, %s: %d, want %d", c.version, c.feature, got, c.want)
		}
	}
	seen := map[Feature]bool{}
	for _, fact := range Facts() {
		_, bounded := ParseRelease(fact.Without)
		if fact.Source == "" || fact.Engine == "" || !bounded || seen[fact.Feature] {
			t.Errorf("%s: a fact is there once, has a source and a release without it", fact.Feature)
		}
		seen[fact.Feature] = true
	}
}

func TestOlder(t *testing.T) {
	for _, c := range []struct{ a, b, want string }{
		{"0.32.0", "0.33.0", "0.32.0"},
		{"0.33.0", "v0.32.0", "v0.32.0"},
		{"0.33.0rc1", "0.33.0", "0.33.0rc1"},
		{"0.33.0", "0.33.0", "0.33.0"},
		{"0.5.9", "0.5.10", "0.5.9"},
		{"", "0.33.0", ""},
		{"0.33.0", "latest", ""},
	} {
		if got := Older(c.a, c.b); got != c.want {
			t.Errorf("of %q and %q %q, want %q", c.a, c.b, got, c.want)
		}
	}
}
