// Package policy holds the policies that order the replicas of a pool, the
// scorers that the policy weighted sums, the filters that narrow the candidates
// of any policy, and the formulas of the policy expression: one of each in one
// small file. It uses exported names of package decider only, so a policy
// elsewhere can do all that these do.
//
// The options of a policy have a Validate method. Its error begins with the name of
// the option at fault and a colon, and it builds nothing, so a configuration can
// be checked without making its policies. Constructors call it.
package policy
