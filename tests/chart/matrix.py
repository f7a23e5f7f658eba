"""Values to try: by name what people set. Together they set every value there is."""

from typing import Final

from tests.chart.values import Values

_SELECTOR: Final = {"matchLabels": {"acme.io/tier": "one"}}
_CONDITIONS: Final = [
    {"name": "not-by-backup", "expression": 'request.userInfo.username != "backup"'}
]
_RESOURCES: Final = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}

MATRIX: Final[dict[str, Values]] = {
    "defaults": {},
    "audit": {"audit": True},
    "native": {"mode": "native"},
    "crd": {"mode": "crd", "crds": {"keep": False}},
    "no-definitions": {"crds": {"enabled": False}},
    "pods": {
        "registration": {
            "pods": {
                "failurePolicy": "Fail",
                "namespaceSelector": _SELECTOR,
                "objectSelector": _SELECTOR,
                "matchConditions": _CONDITIONS,
            }
        }
    },
    "no-pods": {"registration": {"pods": {"enabled": False}}},
    "policies": {"registration": {"pods": {"policies": True}}},
    "registration": {
        "registration": {
            "annotations": {"acme.io/owner": "platform"},
            "validating": {
                "failurePolicy": "Ignore",
                "timeoutSeconds": 10,
                "namespaceSelector": {
                    "matchExpressions": [{"key": "acme.io/tier", "operator": "Exists"}]
                },
                "objectSelector": _SELECTOR,
                "matchConditions": _CONDITIONS,
            },
            "withdrawals": {"failurePolicy": "Fail"},
            "mutating": {
                "failurePolicy": "Fail",
                "timeoutSeconds": 7,
                "namespaceSelector": _SELECTOR,
                "objectSelector": _SELECTOR,
                "matchConditions": _CONDITIONS,
            },
        }
    },
    "nothing-mutates": {
        "registration": {"mutating": {"enabled": False}},
        "webhook": {"mutations": ["trim-requesters"]},
    },
    "no-guards": {
        "enforce": {
            "controller-fields": "off",
            "controller-objects": "off",
            "requester-identity": "off",
            "eviction-right": "off",
            "target-truth": "off",
            "target-pair": "off",
            "target-exists": "off",
            "first-sync": "off",
            "condition-finality": "off",
            "heartbeat-spacing": "off",
            "requesters-preserved": "off",
            "responder-identity": "off",
            "managing-priority": "off",
            "response-budget": "off",
        }
    },
    "webhook": {
        "webhook": {
            "port": 10250,
            "healthPort": 18080,
            "concurrency": 1_000_000,
            "drainSeconds": 20,
            "tlsMinVersion": "1.3",
            "controllers": ["system:serviceaccount:ops:mover"],
            "breakGlass": ["oncall"],
            "responseBudget": 7,
            "resources": _RESOURCES,
            "extraArgs": ["--max-body=3Mi"],
        },
        "log": {"format": "text", "level": "debug"},
        "service": {
            "port": 8443,
            "annotations": {"acme.io/owner": "platform"},
            "ipFamilyPolicy": "PreferDualStack",
            "ipFamilies": ["IPv4"],
        },
    },
    "url": {
        "webhook": {"url": "https://usher.example.com:8443/hooks"},
        "certificates": {"extraNames": ["192.0.2.1", "usher.internal"]},
    },
    "own": {
        "certificates": {
            "clusterDomain": "cluster.example",
            "own": {
                "caLife": "730d",
                "leafLife": "30d",
                "wait": "30s",
                "healthPort": 18082,
                "resources": _RESOURCES,
                "extraArgs": ["--health-bind=0.0.0.0"],
            },
        }
    },
    "cert-manager": {
        "certificates": {
            "source": "cert-manager",
            "extraNames": ["192.0.2.1", "usher.internal"],
            "certManager": {"duration": "720h", "renewBefore": "240h"},
        }
    },
    "cert-manager-issuer": {
        "certificates": {
            "source": "cert-manager",
            "certManager": {"issuerRef": {"kind": "ClusterIssuer", "name": "acme"}},
        }
    },
    "secret": {"certificates": {"source": "secret", "existingSecret": {"name": "acme-tls"}}},
    "controller": {
        "controller": {
            "healthPort": 18081,
            "evictor": False,
            "events": "none",
            "standDown": False,
            "concurrency": 20,
            "damping": 600,
            "evictionDeadline": 7200,
            "requestTTL": 3600,
            "orphanTTL": 31_536_000,
            "resources": _RESOURCES,
            "extraArgs": ["--lease-duration=30"],
        }
    },
    "no-controller": {"controller": {"enabled": False}},
    "node-health": {
        "controller": {
            "nodeHealth": {
                "enabled": True,
                "requester": "nodes.acme.io/failed",
                "lead": 240,
                "deadline": 3600,
                "evictionRate": 0.000002,
                "secondaryEvictionRate": 0.5,
                "unhealthyZoneThreshold": 0.25,
                "largeClusterSizeThreshold": 10,
            }
        }
    },
    "node-health-dry-run": {"controller": {"nodeHealth": {"enabled": True, "dryRun": True}}},
    "one-replica": {
        "replicas": 1,
        "podDisruptionBudget": {"enabled": False},
        "strategy": {"type": "Recreate", "rollingUpdate": None},
    },
    "pods-of-ours": {
        "nameOverride": "evictions",
        "fullnameOverride": "acme-usher",
        "commonLabels": {"acme.io/team": "platform"},
        "image": {
            "registry": "registry.example.com/mirror",
            "repository": "acme/usher",
            "tag": "1.2.3",
            "pullPolicy": "Always",
            "pullSecrets": [{"name": "registry"}],
        },
        "revisionHistoryLimit": 1,
        "terminationGracePeriodSeconds": 90,
        "podDisruptionBudget": {
            "maxUnavailable": "50%",
            "unhealthyPodEvictionPolicy": "IfHealthyBudget",
        },
        "topologySpreadConstraints": [],
        "nodeSelector": {"acme.io/pool": "system"},
        "tolerations": [{"key": "acme.io/system", "operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 1,
                        "preference": {
                            "matchExpressions": [
                                {"key": "acme.io/spot", "operator": "DoesNotExist"}
                            ]
                        },
                    }
                ]
            }
        },
        "priorityClassName": "system-cluster-critical",
        "podLabels": {"acme.io/mesh": "off"},
        "podAnnotations": {"acme.io/log": "json"},
        "podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None},
        "securityContext": {"privileged": False},
        "extraEnv": [{"name": "TZ", "value": "UTC"}],
        "extraVolumes": [{"name": "tmp", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
        "extraObjects": [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "{{ .Release.Name }}-one", "namespace": "usher-system"},
            },
            'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: two, namespace: "usher-system"}\n',
        ],
    },
    "digest": {
        "image": {"digest": f"sha256:{'0' * 64}"},
        "runtimeClassName": "gvisor",
        "dnsPolicy": "Default",
    },
    "host-network": {"hostNetwork": True},
    "rights-of-ours": {
        "serviceAccount": {"create": False, "name": "evictions"},
        "rbac": {"create": False},
        "roles": {"enabled": False},
    },
    "roles": {
        "serviceAccount": {"annotations": {"acme.io/owner": "platform"}},
        "roles": {
            "viewer": {"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
            "responder": {
                "labels": {"acme.io/for": "operators"},
                "names": {"failover": ["db.acme.io/failover", "mesh.acme.io/*"]},
            },
            "requester": {
                "labels": {"acme.io/for": "drainers"},
                "names": {"drain": ["nodes.acme.io/drain"]},
            },
        },
    },
    "metrics": {
        "metrics": {
            "serviceMonitor": {
                "enabled": True,
                "labels": {"release": "prometheus"},
                "interval": "15s",
            },
            "prometheusRule": {
                "enabled": True,
                "labels": {"release": "prometheus"},
                "alertLabels": {"team": "platform"},
                "ignoredNamespaces": ["shop", "bank-eu"],
            },
            "dashboard": {
                "enabled": True,
                "labels": {"grafana": "yes"},
                "annotations": {"folder": "Platform"},
            },
        },
        "controller": {"nodeHealth": {"enabled": True}},
    },
    "no-metrics": {"metrics": {"service": False}},
    "network-policy": {
        "networkPolicy": {
            "enabled": True,
            "webhookFrom": [{"ipBlock": {"cidr": "192.0.2.0/24"}}],
            "metricsFrom": [{"namespaceSelector": {"matchLabels": {"acme.io/monitoring": "yes"}}}],
            "apiServerPorts": [6443],
            "apiServerTo": [{"ipBlock": {"cidr": "192.0.2.0/24"}}],
            "extraEgress": [{"ports": [{"port": 4317, "protocol": "TCP"}]}],
        }
    },
}
