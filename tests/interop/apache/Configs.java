import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;

import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.coordinator.group.GroupCoordinatorConfig;
import org.apache.kafka.coordinator.group.modern.share.ShareGroupConfig;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.FeatureVersion;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.ConfigSynonym;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * What Apache Kafka knows of configurations and features, a line for each, its fields separated by tabs:
 *
 *   topic|broker|group|client-metrics  name  type  default  allowed  synonyms
 *   mode      name  read-only|per-broker|cluster-wide
 *   feature   name  lowest  highest  default at each level of metadata.version, from the lowest on
 *   needs     name  level  another feature  its level
 *   level     number  name  whether the metadata changed
 *
 * With an argument, it judges instead: for every line "table  name  value" of its input it says "yes" or "no".
 */
public class Configs {
    public static void main(String[] args) throws IOException {
        if (args.length > 0) {
            judge();
            return;
        }
        keys("topic", LogConfig.configDefCopy(), Configs::topicSynonyms);
        keys("broker", AbstractKafkaConfig.CONFIG_DEF, name ->
            String.join(",", DynamicBrokerConfig.brokerConfigSynonyms(name, false)));
        keys("group", GroupConfig.CONFIG_DEF, name -> GroupConfig.brokerSynonym(name).orElse(""));
        keys("client-metrics", ClientMetricsConfigs.configDef(), name -> "");
        new TreeMap<>(DynamicBrokerConfig.dynamicConfigUpdateModes()).forEach((name, mode) ->
            print("mode", name, mode));
        features();
    }

    interface Synonyms {
        String of(String name);
    }

    private static void keys(String table, ConfigDef definition, Synonyms synonyms) {
        for (String name : new TreeSet<>(definition.names())) {
            ConfigDef.ConfigKey key = definition.configKeys().get(name);
            String value = !key.hasDefault() ? "(required)"
                : key.defaultValue == null ? "(null)"
                : ConfigDef.convertToString(key.defaultValue, key.type);
            print(table, name, key.type.name().toLowerCase(), value,
                key.validator == null ? "" : key.validator.toString(), synonyms.of(name));
        }
    }

    /** The keys of brokers whose values are the default of a topic's, the strongest first, with their units. */
    private static String topicSynonyms(String name) {
        List<ConfigSynonym> synonyms =
            ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.getOrDefault(name, List.of());
        return synonyms.stream()
            .map(one -> one.name() + "*" + one.converter().apply("1"))
            .collect(Collectors.joining(","));
    }

    private static void features() {
        for (Feature feature : Feature.PRODUCTION_FEATURES) {
            StringBuilder levels = new StringBuilder();
            for (MetadataVersion level : MetadataVersion.VERSIONS) {
                levels.append(levels.length() == 0 ? "" : ",").append(feature.defaultLevel(level));
            }
            print("feature", feature.featureName(), String.valueOf(feature.minimumProduction()),
                String.valueOf(feature.latestProduction()), levels.toString());
        }
        for (Feature feature : Feature.PRODUCTION_FEATURES) {
            for (FeatureVersion version : feature.featureVersions()) {
                version.dependencies().forEach((name, level) -> print("needs", feature.featureName(),
                    String.valueOf(version.featureLevel()), name, String.valueOf(level)));
            }
        }
        for (MetadataVersion level : MetadataVersion.VERSIONS) {
            print("level", String.valueOf(level.featureLevel()), level.version(),
                String.valueOf(level.didMetadataChange()));
        }
    }

    private static void judge() throws IOException {
        AbstractConfig node = new AbstractConfig(AbstractKafkaConfig.CONFIG_DEF,
            Map.of("process.roles", "broker", "node.id", "1", "controller.listener.names", "C"), false);
        GroupCoordinatorConfig groups = new GroupCoordinatorConfig(node);
        ShareGroupConfig shareGroups = new ShareGroupConfig(node);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] fields = line.split("\t", -1);
            Map<String, String> configs = Map.of(fields[1], fields[2]);
            try {
                switch (fields[0]) {
                    case "topic" -> LogConfig.validate(Map.of(), configs, node.originals(), false);
                    case "group" -> GroupConfig.validate(configs, groups, shareGroups);
                    case "client-metrics" -> ClientMetricsConfigs.validate("subscription", configs);
                    case "broker" -> new ConfigDef()
                        .define(AbstractKafkaConfig.CONFIG_DEF.configKeys().get(fields[1])).parse(configs);
                    default -> throw new IllegalArgumentException(line);
                }
                System.out.println("yes");
            } catch (ConfigException | ApiException refusal) {
                System.out.println("no");
            }
        }
    }

    private static void print(String... fields) {
        System.out.println(String.join("\t", fields));
    }
}
